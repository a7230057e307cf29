"""The examples whose trainables are programs, or train what is no network of ours."""

import json

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long]

SMALL = {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5}


@pytest.mark.full  # the scripts of docs/how-to/scripts.md have the same form, and always run
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
