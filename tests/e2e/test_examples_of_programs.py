"""The examples whose trainables are programs, or train what is no network of ours."""

import json
import shutil
from pathlib import Path

import pytest

import hposvc

pytestmark = [pytest.mark.ray, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"trials.max": 4, "fidelity.max": 3, "resources.cpus_per_worker": 0.5}


# How arguments are written for each is held by tests/trainables/programs/test_arguments.py.
@pytest.mark.parametrize(
    "library",
    ["absl", "hydra", *(pytest.param(name, marks=pytest.mark.full) for name in ("click", "tyro"))],
)
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


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("spec", "script"),
    [
        ("script_accelerate.yaml", "train_accelerate.py"),
        ("torchrun_shards.yaml", "train_shards.py"),
    ],
)
def test_two_ranks_go_on_from_their_checkpoint(tmp_path, monkeypatch, home_with_ray, spec, script):
    monkeypatch.setenv("HPOSVC_HOME", str(home_with_ray))
    monkeypatch.delenv("HPOSVC_DB", raising=False)
    starts = tmp_path / "starts"  # of each rank, with what it goes on from
    counting = f"""
import os
with open({str(starts)!r}, "a") as file:
    print(os.environ["WORLD_SIZE"], "HPOSVC_RESTORE_DIR" in os.environ, file=file)
"""
    shutil.copy(EXAMPLES / spec, tmp_path)
    (tmp_path / script).write_text(counting + (EXAMPLES / script).read_text())
    fewer = {"trials.max": 3, "tracking.send_to": []}
    result = hposvc.Sweep.load(tmp_path / spec, fewer).run(progress=False)
    trials = result.trials
    assert {*trials["state"]} == {"COMPLETED", "STOPPED"}
    longest = trials[trials["state"] == "COMPLETED"].iloc[0]
    assert longest["attempts"] == 2
    curve = result.curves[result.curves["trial"] == longest["trial"]].sort_values("step")
    assert [*curve["step"]] == [1, 2, 3]
    assert curve["loss"].iloc[2] < curve["loss"].iloc[0]
    assert sorted(starts.read_text().splitlines()) == 6 * ["2 False"] + 2 * ["2 True"]


def test_a_server_is_tuned_under_rising_load(complete):
    small = {"trials.max": 2, "fidelity.max": 2, "parameters.max_num_seqs": 4}
    status = complete("serve_toy.yaml", {**small, "trials.parallel": 1})
    assert status["trials"]["failed"] == 0
