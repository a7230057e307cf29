"""Elastic slots on a real cluster. If these fail, a trial waits for resources that it never gets,
or GPUs stand idle."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import ray
from engines import await_none, in_slots
from simulated_sweeps import spec_of

from cluster import launch
from hposvc import api
from hposvc.backends.ray.elasticity import PATIENCE_S, ElasticWorkers
from hposvc.events import Decided, Ordered
from hposvc.spec.sections import Resources, Span

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Make a second of remaining work worth a restart with more workers."""
    monkeypatch.setattr("hposvc.controller.elasticity.WORTH_S", 0.5)


def run(sweeps, steps):
    with joined(sweeps):
        cores = ray.cluster_resources()["CPU"]
    roles = ("fails", "goes on")
    spec = spec_of(
        "growing_toys:patient",
        fidelity={"max": steps},
        parameters={"role": {"values": [*roles]}},
        initial=[{"role": role} for role in roles],
        trials={"max": 2, "parallel": 2},
        resources={"workers": {"min": 1, "max": 2}, "cpus_per_worker": cores / 2},
    )
    row = api.create(sweeps, spec)
    api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read(row.id)]
    workers = [
        event.order.workers
        for event in events
        if isinstance(event, Ordered) and event.order.trial == "t0002"
    ]
    grown = [event for event in events if isinstance(event, Decided) and event.reason == "wider"]
    _, trial = api.load(sweeps, row.id).trials()
    return trial, workers, grown


@contextmanager
def joined(sweeps):
    connection = launch.connect(sweeps.home.path / "ray")
    yield
    connection.close()


class Other:
    """An actor of another sweep, which holds resources."""

    def is_there(self):
        return True


@pytest.mark.full
@pytest.mark.long
def test_the_last_trial_gets_the_workers_that_another_left(sweeps):
    """The trial repeats no step, since its checkpoint moves with it."""
    trial, widths, grown = run(sweeps, steps=400)
    assert (trial.state, trial.step) == ("COMPLETED", 400)
    assert (widths[0], widths[-1], len(grown)) == (1, 2, 1)
    assert trial.metrics["ranks"] == 2
    assert trial.metrics.total == 400
    await_none(lambda: in_slots(sweeps.home.path))


@pytest.mark.full
def test_a_trial_does_not_wait_for_room_that_another_sweep_holds(sweeps):
    """Otherwise the trial would stand still for as long as the other sweep runs."""
    with joined(sweeps):
        half = ray.cluster_resources()["CPU"] / 2
        options = {"num_cpus": half, "lifetime": "detached", "name": "other"}
        other = ray.remote(Other).options(**options).remote()
        assert ray.get(other.is_there.remote(), timeout=60)
    try:
        trial, widths, grown = run(sweeps, steps=60)
    finally:
        with joined(sweeps):
            ray.kill(ray.get_actor("other"))
    assert (trial.state, trial.metrics["ranks"]) == ("COMPLETED", 1)
    assert (widths, grown) == ([1], [])


def test_who_was_too_slow_for_the_room_goes_on_with_the_fewest_workers():
    """Another sweep took the resources between check and request, and may run for days."""
    resources = Resources(workers=Span(1, 4))
    cluster = SimpleNamespace(resources=resources, max_workers=lambda slots: 4, crowded=False)
    elastic = ElasticWorkers(cluster)
    requested_at = time.monotonic() - PATIENCE_S - 1
    wide = SimpleNamespace(
        state="placing", requested_at=requested_at, resources=resources.with_workers(4)
    )
    assert elastic.choose(1, [wide]) == 1
    assert elastic.choose(1, []) == 1, "and does not ask again at once"
