import io

import pytest
from rich.console import Console

from hposvc.api import Steered
from hposvc.home import Home
from hposvc.views.outcome import failures, logs, mlflow, steered


def text_of(part):
    console = Console(file=io.StringIO(), width=200, markup=False, highlight=False)
    console.print(part)
    return console.file.getvalue()


def test_failures_are_told_by_their_last_line_and_not_all_of_them():
    messages = {f"t{number:04}": f"Traceback\nValueError: {number}" for number in range(8)}
    text = text_of(failures("mine", messages))
    assert "8 failed" in text
    assert "t0004  ValueError: 4  → hposvc logs mine t0004" in text
    assert "t0005" not in text
    assert "… and 3 more; hposvc trials mine" in text


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("sqlite:////home/mlflow.db", "mlflow ui --backend-store-uri sqlite:////home/mlflow.db"),
        ("http://me:secret@server:5000", "http://***@server:5000  (experiment default)"),
    ],
)
def test_mlflow_is_opened_without_a_word_of_the_password(tmp_path, story, uri, said):
    text = text_of(mlflow(Home(tmp_path, "", uri), story.state.spec))
    assert said in text
    assert "secret" not in text


def test_one_log_is_printed_bare():
    log = {"trial": "t1", "order": 1, "rank": 0, "path": "/x", "text": "{hello}"}
    assert logs([log]) == "{hello}"
    assert logs([]) == ""


@pytest.mark.parametrize(
    ("answer", "trial", "said"),
    [
        (Steered("mine", "RUNNING", "alive", "host:7"), None, "(process 7 on host): mine ends"),
        (Steered("mine", "RUNNING", "alive", "a:b:7"), "t0003", "(process 7 on a:b): t0003 ends"),
        (Steered("mine", "STOPPED", "dead", "host:7"), None, "mine has ended: STOPPED"),
        (Steered("mine", "RUNNING", "dead", "host:7"), "t0003", "hposvc resume mine"),
    ],
)
def test_who_carries_a_request_out_is_said(answer, trial, said):
    assert said in steered(answer, "kill", trial)
