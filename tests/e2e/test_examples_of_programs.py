"""The examples whose trainables are programs, or train what is no network of ours."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long]

SMALL = {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5}


@pytest.mark.full  # README.md runs it, too
def test_boosted_trees_are_tuned(complete):
    checkpoint = complete("tabular_sklearn.yaml", SMALL)["best"]["checkpoint"]
    assert Path(checkpoint).is_dir()


@pytest.mark.full  # README.md runs it, too
def test_a_script_is_tuned_by_its_output(complete, home):
    status = complete("script.yaml", SMALL)
    checkpoint = status["best"]["checkpoint"]
    if checkpoint is None:
        # A script whose output is read may be writing its next one already: then a step gives none.
        assert any((home / "sweeps" / status["sweep"] / "checkpoints").glob("t*/*"))
    else:
        assert Path(checkpoint).is_dir()


@pytest.mark.full  # the scripts of docs/scripts.md have the same form, and always run
@pytest.mark.parametrize("library", ["click", "absl", "tyro", "hydra"])
def test_a_script_of_another_library_is_tuned(complete, library):
    status = complete(f"script_{library}.yaml", {**SMALL, "engine": "local"})
    assert status["best"]["value"] > 0.5


@pytest.mark.full
def test_torchrun_starts_the_ranks_of_a_script(python):
    sets = ("--set", "trials.max=2", "--set", "resources.cpus_per_worker=0.5")
    ended = python("-m", "hposvc", "run", "examples/torchrun.yaml", *sets, "-o", "json")
    status = json.loads(ended.stdout)
    assert status["trials"]["completed"] == 2
    assert status["best"]["step"] == 3
    assert status["best"]["value"] < 2.3  # a guess among ten


@pytest.mark.full  # README.md runs it, too
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
