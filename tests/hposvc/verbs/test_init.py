"""`hposvc init` and `hposvc schema`: from a script to a sweep."""

import json
import shutil
from pathlib import Path

import pytest

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


def test_what_has_nothing_to_search_is_refused(hposvc, here):
    (here / "train_script.py").write_text("print(1)")
    assert "no script here" in hposvc("init").err
    answer = hposvc("init", "train_script.py")
    assert (answer.code, answer.out) == (2, "")
    assert "nothing to search was found; it has no arguments" in answer.err
    assert not (here / "sweep.yaml").exists()


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
