"""The examples that are Python programs."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]


def test_a_function_that_reports_is_swept(python, tmp_path):
    ended = python(str(ROOT / "examples" / "function.py"), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    assert str(best["value"]) in ended.stdout
    assert best["value"] > 0.8


def test_the_quickstart_finds_a_good_model(python, tmp_path):
    ended = python(str(ROOT / "examples" / "quickstart.py"), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    assert str(best["value"]) in ended.stdout
    assert best["value"] > 0.9


def test_the_loop_of_an_agent_keeps_the_edit_that_helps_and_discards_the_others(python, tmp_path):
    said = python(str(ROOT / "examples" / "agent_loop.py"), cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in said] == ["DISCARD", "KEEP", "DISCARD"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "enough"), [("ray_tune.py", 0.8), ("optuna_distributions.py", 0.3)]
)
def test_what_was_written_for_others_runs_as_it_is(python, tmp_path, name, enough):
    ended = python(str(ROOT / "examples" / name), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    assert str(best["value"]) in ended.stdout
    assert best["value"] > enough


@pytest.mark.full
def test_a_space_that_a_function_suggests_is_searched(python, tmp_path):
    python(str(ROOT / "examples" / "optuna_space.py"), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    own = {"forest": {"max_depth", "max_features"}, "logistic": {"C"}}
    assert best["params"].keys() == {"model", *own[best["params"]["model"]]}
    assert best["value"] > 0.9


@pytest.mark.full
def test_our_searcher_serves_a_tuner_of_ray_tune(python, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("HOME", str(tmp_path))  # where Tune writes its results
    ended = python(str(ROOT / "examples" / "tune_search.py"), cwd=tmp_path)
    assert float(ended.stdout.split()[-1]) > 0.9
