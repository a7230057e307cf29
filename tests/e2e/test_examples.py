"""Every example runs, in a small form, to its end."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SMALL = {
    "tabular_sklearn.yaml": {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5},
}


def test_no_example_is_without_a_test():
    assert {file.name for file in (ROOT / "examples").iterdir() if file.is_file()} == {
        *SMALL,
        "digits.yaml",  # run by test_readme.py, and killed in tests/chaos
        "quickstart.py",
    }


@pytest.mark.parametrize("name", SMALL)
def test_a_spec_runs(python, name):
    sets = [part for key, value in SMALL[name].items() for part in ("--set", f"{key}={value}")]
    ended = python("-m", "hposvc", "run", f"examples/{name}", *sets, "-o", "json")
    status = json.loads(ended.stdout)
    assert status["state"] == "COMPLETED"
    assert status["trials"]["total"] == SMALL[name]["trials.max"]
    assert status["trials"]["failed"] == 0
    assert Path(status["best"]["checkpoint"]).is_dir()


def test_the_quickstart_finds_a_good_model(python, tmp_path):
    ended = python(str(ROOT / "examples" / "quickstart.py"), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    assert str(best["value"]) in ended.stdout
    assert best["value"] > 0.9
