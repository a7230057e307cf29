"""docs/scripts.md: each script runs in a sweep by the spec beside it."""

import re
import shlex
from pathlib import Path

import pytest
from command_line import run
from ruamel.yaml import YAML

from trainables.programs.arguments import PARAMETER_LISTS, render

PAGE = (Path(__file__).parents[3] / "docs" / "scripts.md").read_text()
SECTIONS = re.findall(
    r"^## (\w+)[^\n]*\n(?:(?!^## ).)*?^```python\n(.*?)^```\n\n```yaml\n(.*?)^```$",
    PAGE,
    re.MULTILINE | re.DOTALL,
)
LIBRARIES = ["argparse", "click", "absl", "tyro", "Hydra"]


def test_every_library_has_a_script_and_a_spec():
    assert [library for library, _, _ in SECTIONS] == LIBRARIES


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("script", "spec"), [parts for _, *parts in SECTIONS], ids=LIBRARIES)
def test_a_script_of_the_page_is_swept(tmp_path, monkeypatch, capfd, script, spec):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(script)
    changes = {"trials": {"max": 2}, "engine": "local", "tracking": {"send_to": []}}
    with (tmp_path / "sweep.yaml").open("w") as file:
        YAML(typ="safe").dump({**YAML(typ="safe").load(spec), **changes}, file)
    ended = run(capfd, "run", "sweep.yaml", "-o", "json")
    assert ended.code == 0, ended.err
    status = ended.data
    assert status["trials"]["failed"] == 0, ended.err
    assert status["trials"]["total"] == 2
    assert status["best"]["value"] < 25.0  # what the first step starts from


def test_what_the_table_says_is_what_a_script_gets():
    values = {
        "lr": 0.1,
        "optimizer.lr": 0.1,
        "config.lr": 0.1,
        "ema": True,
        "use_ema": False,
        "optimizer.use_ema": False,
    }
    rows = re.findall(r"^\| [^|]+ \| `(\$\{args\w*\})` \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert {item[2:-1] for item, _ in rows} <= PARAMETER_LISTS.keys()
    assert len(rows) == 7
    for item, cell in rows:
        words = [word for code in re.findall(r"`([^`]+)`", cell) for word in shlex.split(code)]
        possible = {
            *render([item], values, {}),
            *render([item], {**values, "use_ema": True}, {}),
        }
        assert set(words) <= possible, item
