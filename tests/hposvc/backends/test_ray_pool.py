"""Orders on real Ray actors and real process groups. If these fail, no sweep can be trusted."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest
import ray

from cluster import launch
from hposvc import api
from hposvc import spec as specs
from hposvc.backends.backend import OutOfReach
from hposvc.events import Failed

pytestmark = pytest.mark.ray
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home whose Ray stays up between tests, as a second driver would keep it."""
    folder = tmp_path_factory.mktemp("home")
    with launch.start(folder / "ray"):
        yield folder
    launch._await_end(folder / "ray")


@pytest.fixture
def sweeps(home, monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    return api.Sweeps.open(home)


def spec(function: str, **sections):
    """A sweep of one trial of three steps on one rank, but for what is given."""
    return specs.load(
        {
            "trainable": f"toys:{function}",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": 3},
            "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
            "search": "random",
            "trials": {"max": 1, "parallel": 1},
            "resources": {"workers": 1, "cpus_per_worker": 0.5},
            "tracking": {"uri": "sqlite:///unused.db"},
            **sections,
        }
    )


def run(sweeps, given):
    row = api.create(sweeps, given)
    status = api.drive(sweeps, row)
    return row.id, status


def events(sweeps, sweep, kind):
    return [event for _, event in sweeps.journal.read(sweep) if isinstance(event, kind)]


def rank_processes():
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if (process.info["cmdline"] or [""])[0].startswith(("ray::Rank", "ray::Leader"))
        and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_two_ddp_ranks_train_and_leave_nothing_behind(sweeps, home):
    two = {"workers": 2, "cpus_per_worker": 0.5}
    sweep, status = run(
        sweeps, spec("ddp", resources=two, trials={"max": 4, "parallel": 2}, scheduler="asha")
    )
    assert status["state"] == "COMPLETED"
    trials = api.trials(sweeps, sweep)
    assert len(trials) == 4
    assert all(trial["metrics"]["ranks"] == 2 for trial in trials)
    connection = launch.connect(home / "ray")
    assert ray.available_resources()["CPU"] == ray.cluster_resources()["CPU"]
    connection.close()
    assert rank_processes() == []
