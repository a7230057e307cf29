"""Every example runs, in a small form, to its end."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SMALL = {
    "tables.yaml": {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5},
    "tabular_sklearn.yaml": {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5},
    "digits_pbt.yaml": {
        "trials.max": 4,
        "fidelity.max": 4,
        "parameters.width": 8,
        "resources.cpus_per_worker": 0.5,
    },
    "script.yaml": {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5},
    "lora.yaml": {
        "trials.max": 2,
        "fidelity.max": 3,
        "parameters.samples": 64,
        "parameters.length": 8,
        "resources.cpus_per_worker": 0.5,
    },
    "gpt_text.yaml": {
        "trials.max": 3,
        "fidelity.min": 1,
        "fidelity.max": 2,
        "parameters.share": 0.01,
        "resources.cpus_per_worker": 0.5,
    },
    "training.yaml": {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5},
    "fashion_ddp.yaml": {
        "trials.max": 3,
        "fidelity.max": 3,
        "parameters.data": "digits",  # the others come with Debian, not with Python
        "resources.cpus_per_worker": 0.5,
    },
}


def test_no_example_is_without_a_test():
    assert {file.name for file in (ROOT / "examples").iterdir() if file.is_file()} == {
        *SMALL,
        "digits.yaml",  # run by test_readme.py, and killed in tests/chaos
        "quickstart.py",
        "train_script.py",  # of script.yaml
        "llm_lora.yaml",  # for GPUs
        "torchrun.yaml",
        "train_torchrun.py",
        "function.py",
        "optuna_space.py",
        "tune_search.py",
        "ray_tune.py",
        "optuna_distributions.py",
        "pareto.yaml",
        "train_front.py",  # of pareto.yaml
    }


@pytest.mark.parametrize("name", SMALL)
def test_a_spec_runs(python, home, name):
    sets = [part for key, value in SMALL[name].items() for part in ("--set", f"{key}={value}")]
    ended = python("-m", "hposvc", "run", f"examples/{name}", *sets, "-o", "json")
    status = json.loads(ended.stdout)
    assert status["state"] == "COMPLETED"
    assert status["trials"]["total"] == SMALL[name]["trials.max"]
    assert status["trials"]["failed"] == 0
    checkpoint = status["best"]["checkpoint"]
    if checkpoint is None:
        # A script whose output is read may be writing its next one already: then a step gives none.
        assert name == "script.yaml"
        assert any((home / "sweeps" / status["sweep"] / "checkpoints").glob("t*/*"))
    else:
        assert Path(checkpoint).is_dir()


def test_a_spec_for_large_machines_is_valid_without_them(python):
    ended = python("-m", "hposvc", "validate", "examples/llm_lora.yaml")
    assert "trainables.zoo.hugging:CausalLM" in ended.stdout


def test_torchrun_starts_the_ranks_of_a_script(python):
    sets = ("--set", "trials.max=2", "--set", "resources.cpus_per_worker=0.5")
    ended = python("-m", "hposvc", "run", "examples/torchrun.yaml", *sets, "-o", "json")
    status = json.loads(ended.stdout)
    assert status["trials"]["completed"] == 2
    assert status["best"]["step"] == 3
    assert status["best"]["value"] < 2.3  # a guess among ten


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


@pytest.mark.parametrize(
    ("name", "enough"), [("ray_tune.py", 0.8), ("optuna_distributions.py", 0.3)]
)
def test_what_was_written_for_others_runs_as_it_is(python, tmp_path, name, enough):
    ended = python(str(ROOT / "examples" / name), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    assert str(best["value"]) in ended.stdout
    assert best["value"] > enough


def test_several_metrics_give_a_front_within_the_limits(python):
    sets = ("--set", "trials.max=12")
    ended = python("-m", "hposvc", "run", "examples/pareto.yaml", *sets, "-o", "json")
    status = json.loads(ended.stdout)
    assert status["trials"]["failed"] == 0
    front = [
        (one["metrics"]["val/accuracy"], one["metrics"]["parameters"]) for one in status["best"]
    ]
    assert front == sorted(front, reverse=True)
    assert [size for _, size in front] == sorted((size for _, size in front), reverse=True)
    assert front[0][0] >= front[-1][0] >= 0.8


def test_a_space_that_a_function_suggests_is_searched(python, tmp_path):
    python(str(ROOT / "examples" / "optuna_space.py"), cwd=tmp_path)
    best = json.loads(python("-m", "hposvc", "best", "last", "-o", "json").stdout)
    own = {"forest": {"max_depth", "max_features"}, "logistic": {"C"}}
    assert best["params"].keys() == {"model", *own[best["params"]["model"]]}
    assert best["value"] > 0.9


def test_our_searcher_serves_a_tuner_of_ray_tune(python, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("HOME", str(tmp_path))  # where Tune writes its results
    ended = python(str(ROOT / "examples" / "tune_search.py"), cwd=tmp_path)
    assert float(ended.stdout.split()[-1]) > 0.9
