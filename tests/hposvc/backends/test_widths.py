"""Slots that grow on a real cluster. If these fail, a trial waits for room that it never gets, or
GPUs stand idle."""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import ray
from engines import await_none, in_slots

from cluster import launch
from hposvc import api
from hposvc import spec as specs
from hposvc.backends.widths import PATIENCE_S, Widths
from hposvc.events import Decided, Ordered
from hposvc.spec.sections import Span

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """A second of work left is worth a start."""
    monkeypatch.setattr("hposvc.widening.WORTH_S", 0.5)


def run(sweeps, steps):
    with joined(sweeps):
        cores = ray.cluster_resources()["CPU"]
    given = specs.load(
        {
            "trainable": "growing_toys:patient",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": steps},
            "parameters": {"role": {"values": ["fails", "goes on"]}},
            "initial": [{"role": "fails"}, {"role": "goes on"}],
            "search": "random",
            "trials": {"max": 2, "parallel": 2},
            "resources": {"workers": {"min": 1, "max": 2}, "cpus_per_worker": cores / 2},
        }
    )
    row = api.create(sweeps, given)
    api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read(row.id)]
    widths = [
        event.order.workers
        for event in events
        if isinstance(event, Ordered) and event.order.trial == "t0002"
    ]
    grown = [event for event in events if isinstance(event, Decided) and event.reason == "wider"]
    _, trial = api.trials(sweeps, row.id)
    return trial, widths, grown


@contextmanager
def joined(sweeps):
    connection = launch.connect(sweeps.home.path / "ray")
    yield
    connection.close()


class Other:
    """Of another sweep."""

    def is_there(self):
        return True


def test_the_last_trial_gets_the_workers_that_another_left(sweeps):
    """And repeats no step: its checkpoint goes with it."""
    trial, widths, grown = run(sweeps, steps=400)
    assert (trial["state"], trial["step"]) == ("COMPLETED", 400)
    assert (widths[0], widths[-1], len(grown)) == (1, 2, 1)
    assert trial["metrics"]["ranks"] == 2
    assert trial["metrics"]["total"] == 400
    await_none(lambda: in_slots(sweeps.home.path))


def test_a_trial_does_not_wait_for_room_that_another_sweep_holds(sweeps):
    """It would stand still for as long as that other one runs."""
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
    assert (trial["state"], trial["metrics"]["ranks"]) == ("COMPLETED", 1)
    assert (widths, grown) == ([1], [])


def test_who_was_too_slow_for_the_room_goes_on_with_the_fewest_workers():
    """Somebody else took it between our look and our asking; that sweep may run for days."""
    resources = specs.Resources(workers=Span(1, 4))
    joined = SimpleNamespace(resources=resources, widest=lambda slots: 4)
    widths = Widths(joined)
    asked = time.monotonic() - PATIENCE_S - 1
    wide = SimpleNamespace(state="placing", asked_at=asked, resources=resources.of(4))
    assert widths.choose(1, [wide]) == 1
    assert widths.choose(1, []) == 1, "and does not ask again at once"
