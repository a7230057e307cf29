"""Sweeps on a GPU, by the command. If these fail, a cluster's GPUs are wasted or fought over.

They need one CUDA device that nobody else uses, and are skipped without it.
"""

import json
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.ray,
    pytest.mark.gpu,
    pytest.mark.long,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HERE = Path(__file__).parent
GIB = 2**30
NEAR_GIB = 1.0  # of two readings of what is free; trials take 8 GiB
SCRIPT = """
import argparse, os, torch
flags = argparse.ArgumentParser()
flags.add_argument("--x", type=float)
loss = (torch.ones(1, device="cuda") * flags.parse_args().x).item()
print(f"loss={loss} devices={torch.cuda.device_count()} rank={os.environ['LOCAL_RANK']}")
"""


@pytest.fixture(scope="module")
def sweep(python, tmp_path_factory):
    """Runs a sweep of one trial after the other on the GPU; gives its status and its trials."""

    def run(function, **sections):
        given = {
            "trainable": f"{HERE / 'on_gpu.py'}:{function}",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": 1},
            "parameters": {"x": {"values": [0.0, 1.0, 2.0, 3.0]}},
            "search": {"method": "grid"},
            "trials": {"max": 3, "parallel": 1},
            **sections,
        }
        resources = {"workers": 1, "cpus_per_worker": 0.5, "gpus_per_worker": 1}
        given["resources"] = resources | sections.get("resources", {})
        given = {key: value for key, value in given.items() if value is not None}
        file = tmp_path_factory.mktemp("spec") / "sweep.yaml"
        file.write_text(json.dumps(given))  # JSON is YAML
        status = json.loads(python("-m", "hposvc", "run", str(file), "-o", "json").stdout)
        listed = python("-m", "hposvc", "trials", status["sweep"], "-o", "json").stdout
        return status, json.loads(listed)

    return run


def free_gib():
    """What is free on the GPU, this process's own context aside."""
    return torch.cuda.mem_get_info()[0] / GIB


def states(trials):
    return [trial["state"] for trial in trials]


def seen(trials, metric):
    return [trial["metrics"][metric] for trial in trials]


def assert_all_near(amounts):
    """The GPU was as empty each time: more than a GiB less is somebody's who is gone."""
    assert max(amounts) - min(amounts) < NEAR_GIB, amounts


@pytest.mark.parametrize("engine", ["ray", "tune"])
def test_a_task_trains_on_its_gpu_in_bfloat16(sweep, engine):
    status, trials = sweep(
        "Watched",
        engine=engine,
        metric={"name": "val/accuracy", "goal": "maximize"},
        fidelity={"max": 3},
        parameters={"lr": {"values": [3e-3, 6e-3]}, "width": 16},
        training={"strategy": "ddp", "precision": "bf16-mixed"},
        trials={"max": 2, "parallel": 1},
    )
    assert (status["state"], states(trials)) == ("COMPLETED", ["COMPLETED"] * 2)
    for name in ("val/on_gpu", "val/bfloat16", "val/devices"):
        assert seen(trials, name) == [1.0, 1.0], name
    assert min(seen(trials, "val/accuracy")) > 0.8
    assert Path(status["best"]["checkpoint"]).is_dir()
    assert status["gpu_hours"] > 0


def test_a_rank_makes_an_nccl_group_trial_after_trial_and_stays_warm(sweep):
    """Ports, groups and contexts of the one must not be in the way of the next."""
    status, trials = sweep(
        "over_nccl",
        fidelity={"max": 5},
        parameters={"lr": {"values": [0.1, 0.05, 0.02]}, "backend": "nccl"},
        training={"strategy": "ddp", "precision": "bf16-mixed", "process_group": "user"},
    )
    assert (status["state"], states(trials)) == ("COMPLETED", ["COMPLETED"] * 3)
    for name in ("devices", "nccl", "bfloat16", "bf16_asked"):
        assert seen(trials, name) == [1.0] * 3, name
    assert len(set(seen(trials, "pid"))) == 1


def test_a_script_finds_its_gpu(sweep, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    status, trials = sweep(
        "",
        trainable=None,
        command=["python", str(tmp_path / "script.py"), "${args}"],
        collect={"stdout": r"loss=(?P<loss>\S+) devices=(?P<devices>\d) rank=(?P<rank>\d)"},
        trials={"max": 2, "parallel": 1},
    )
    assert (status["state"], states(trials)) == ("COMPLETED", ["COMPLETED"] * 2)
    assert (seen(trials, "devices"), seen(trials, "rank")) == ([1.0] * 2, [0.0] * 2)


def test_two_trials_share_a_gpu_at_the_same_time(sweep, tmp_path):
    status, trials = sweep(
        "meets",
        parameters={"x": {"values": [0.0, 1.0]}, "folder": str(tmp_path)},
        resources={"gpus_per_worker": 0.5},
        trials={"max": 2, "parallel": "auto"},
    )
    assert (status["state"], states(trials)) == ("COMPLETED", ["COMPLETED"] * 2)
    one, other = (json.loads(file.read_text()) for file in sorted(tmp_path.glob("*.json")))
    assert (one["devices"], other["devices"]) == (1, 1)
    assert one["visible"] == other["visible"]
    assert one["gpu"] == other["gpu"]
    assert max(one["begin"], other["begin"]) < min(one["end"], other["end"])


def test_a_trial_that_is_stopped_frees_the_gpu_for_the_next_at_once(sweep):
    """On a shared GPU the neighbour would run out of what the slot's process holds for nobody."""
    _, trials = sweep(
        "sees",
        fidelity={"min": 1, "max": 9},
        scheduler={"type": "asha", "eta": 3},
        trials={"max": 4, "parallel": 1},
    )
    assert states(trials) == ["COMPLETED", "STOPPED", "STOPPED", "STOPPED"]
    assert {trial["reason"] for trial in trials[1:]} == {"rung"}
    assert_all_near(seen(trials, "free_gib"))
    assert len(set(seen(trials, "pid"))) == 1, "the slot stays warm"


def test_a_trial_that_leaks_gpu_memory_costs_its_process_and_nothing_else(sweep):
    """Peers: the third trial on a leaking GPU dies, of the first one's fault."""
    before = free_gib()
    status, trials = sweep("leaks", fidelity={"max": 2})
    assert (status["state"], states(trials)) == ("COMPLETED", ["COMPLETED"] * 3)
    assert [trial["step"] for trial in trials] == [2] * 3
    assert [trial["value"] for trial in trials] == [0.0, 1.0, 2.0]
    assert [trial["attempts"] for trial in trials] == [1] * 3
    assert len(set(seen(trials, "pid"))) == 3, "each in a process of its own"
    assert_all_near(seen(trials, "free_gib"))
    assert_all_near([before, free_gib()])


@pytest.fixture(scope="module")
def crowded(sweep):
    """A trial that fits, one that takes more than there is, and one that fits."""
    return sweep("takes", parameters={"gib": {"values": [1, 10_000, 2]}})


def test_a_trial_that_runs_out_of_memory_fails_and_the_next_one_trains(crowded):
    status, trials = crowded
    assert (status["state"], status["trials"]["failed"]) == ("COMPLETED", 1)
    assert states(trials) == ["COMPLETED", "FAILED", "COMPLETED"]
    assert trials[1]["attempts"] == 1, "it would run out again"
    assert_all_near([trial["metrics"]["free_gib"] for trial in (trials[0], trials[2])])


def test_the_log_of_a_trial_that_ran_out_of_memory_says_so(python, crowded):
    status, _ = crowded
    shown = python("-m", "hposvc", "logs", status["sweep"], "t0002").stdout
    assert "OutOfMemoryError: CUDA out of memory" in shown


def test_a_trial_that_ran_out_of_memory_has_that_as_its_reason(crowded):
    """The searcher is told that the trial failed, so it learns where the memory ends."""
    _, trials = crowded
    assert trials[1]["reason"] == "oom"


def test_a_rank_that_is_killed_on_the_gpu_goes_on_from_its_checkpoint(sweep, tmp_path):
    """Its memory must be gone by then: the second attempt needs it."""
    before, mark = free_gib(), tmp_path / "mark"
    status, trials = sweep(
        "dies_once",
        fidelity={"max": 3},
        parameters={"x": 0.0, "mark": str(mark)},
        search={"method": "random"},
        trials={"max": 1, "parallel": 1},
    )
    first = json.loads(mark.read_text())
    (trial,) = trials
    assert (status["state"], trial["state"], trial["step"]) == ("COMPLETED", "COMPLETED", 3)
    assert (trial["attempts"], trial["metrics"]["first"], trial["value"]) == (2, 2, 3.0)
    assert trial["metrics"]["pid"] != first["pid"]
    assert_all_near([first["free_gib"], trial["metrics"]["free_gib"]])
    assert_all_near([before, free_gib()])
