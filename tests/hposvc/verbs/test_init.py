"""`hposvc init` and `hposvc schema`: from a script to a sweep."""

import json
import os
import pty
import select
import shutil
import signal
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

SCRIPT = Path(__file__).parents[3] / "examples" / "train_script.py"


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copy(SCRIPT, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_gets_a_spec_with_a_schema(hposvc, here):
    answer = hposvc("init")
    assert answer.code == 0
    assert answer.out == (here / "sweep.yaml").read_text()
    assert "hposvc run sweep.yaml" in answer.err
    assert "sweep.yaml" not in answer.out.splitlines()[0]
    schema = json.loads((here / "hposvc.schema.json").read_text())
    assert schema == json.loads(hposvc("schema").out)
    assert hposvc("validate", "sweep.yaml").code == 0
    again = hposvc("init", "train_script.py")
    assert (again.code, again.out) == (2, "")
    assert "sweep.yaml exists" in again.err


def test_presets_are_shown_with_their_sources_and_nothing_is_written(hposvc, here):
    shown = YAML(typ="safe", pure=True).load(hposvc("init", "--presets").out)
    assert shown["lora"][0]["source"].startswith("QLoRA")
    assert [path.name for path in here.iterdir()] == [SCRIPT.name]


def test_what_has_nothing_to_search_is_refused(hposvc, here):
    (here / "train_script.py").write_text("print(1)")
    assert "no script here" in hposvc("init").err
    answer = hposvc("init", "train_script.py")
    assert (answer.code, answer.out) == (2, "")
    assert "nothing to search was found; it has no arguments" in answer.err
    assert not (here / "sweep.yaml").exists()


FOREST = """
import argparse
flags = argparse.ArgumentParser()
flags.add_argument("--learning-rate", type=float, default=0.1)
flags.add_argument("--max-leaf-nodes", type=int, default=31)
flags.add_argument("--log-every", type=int, default=10)
flags.add_argument("--name", default="x")
flags.add_argument("--seed", type=int, default=0)
print(f"accuracy {0.5}")
"""


CTRL_C, CTRL_D = "\x03", "\x04"


def answered(folder, answers, end=""):
    """Run `hposvc init` in a terminal, and return its exit code and all that it printed.

    Args:
        answers: typed at once.
        end: typed at the second question, again each second until it is heard: what comes while a
            question prepares the terminal is lost. Ctrl-C is sent as the signal that it is.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
        os.execve(
            sys.executable, [sys.executable, "-m", "hposvc", "init", "forest.py"], environment
        )
    os.write(terminal, answers.encode())
    printed, asked = b"", b""  # what was there when Ctrl-C was sent: more is the answer to it
    while True:
        try:
            if select.select([terminal], [], [], 1.0)[0]:
                printed += os.read(terminal, 4096)
            elif end == CTRL_C and b"Metric" in printed and asked in (b"", printed):
                asked = printed
                os.kill(pid, signal.SIGINT)
            elif end == CTRL_D and b"Metric" in printed:
                os.write(terminal, end.encode())
        except OSError:  # it has ended
            break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), printed.decode()


def test_a_wrong_answer_is_asked_again_and_a_flag_that_is_asked_for_gets_a_range(tmp_path):
    (tmp_path / "forest.py").write_text(FOREST)
    lines = ["lerning-rate", "name", " ", "--max-leaf-nodes, log-every learning-rate", ".bad name"]
    code, printed = answered(
        tmp_path, "\n".join([*lines, "accuracy", "up", "maximize", "-1", "0"]) + "\n6\n"
    )
    assert code == 0, printed
    assert "no such argument 'lerning-rate'; did you mean 'learning-rate'?" in printed
    assert "nothing tells a range of name" in printed
    assert printed.count("Search these parameters") == 4
    text = (tmp_path / "sweep.yaml").read_text()
    spec = YAML(typ="safe").load(text)
    assert {*spec["parameters"]} == {"max-leaf-nodes", "log-every", "learning-rate"}
    assert spec["parameters"]["max-leaf-nodes"] == {"min": 7, "max": 124, "log": True}
    assert "log: true}  # a guess\n" in text
    assert (spec["metric"], spec["trials"]) == (
        {"name": "accuracy", "goal": "maximize"},
        {"max": 6},
    )
    assert "fidelity" not in spec


@pytest.mark.parametrize("end", [CTRL_C, CTRL_D])
def test_a_wizard_that_is_left_writes_nothing_and_shows_no_traceback(tmp_path, end):
    (tmp_path / "forest.py").write_text(FOREST)
    code, printed = answered(tmp_path, "learning-rate\n", end)
    assert code in (1, 130), printed
    assert "Traceback" not in printed
    assert not (tmp_path / "sweep.yaml").exists()


@pytest.mark.long
def test_what_it_writes_runs(hposvc, here):
    assert hposvc("init", "train_script.py", "--yes").code == 0
    answer = hposvc("run", "sweep.yaml", "--set", "trials.max=2", "--set", "fidelity.max=2")
    assert answer.code == 0, answer.err
    best = hposvc("best", "last", "-o", "json").data
    assert best["trial"]
    assert 0.5 < best["value"] <= 1


def test_examples_are_listed_and_copied(hposvc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = hposvc("examples")
    assert table.code == 0
    assert "digits.yaml" in table.out
    assert "weak trials stopped early" in table.out
    names = {row["example"] for row in hposvc("examples", "-o", "json").data}
    assert {"script.yaml", "quickstart.py"} <= names
    copied = hposvc("examples", "script")
    assert copied.out.split() == ["examples/script.yaml", "examples/train_script.py"]
    assert hposvc("validate", "examples/script.yaml").code == 0
    wrong = hposvc("examples", "scripts")
    assert (wrong.code, wrong.out) == (2, "")
    assert "script.yaml" in wrong.err
