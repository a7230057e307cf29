"""Trials that run out of memory or diverge, on real ranks. If these fail, such trials count as a
user error, or as a failure of the machine that is retried."""

import pytest
from engines import await_none, in_slots
from simulated_sweeps import spec_of

from hposvc import api
from hposvc.events import Checkpointed, Failed, Ordered

pytestmark = pytest.mark.ray


def run(sweeps, name, workers=1, **sections):
    """Run a sweep of one trial with three steps, changed by `sections`.

    Returns:
        The sweep's status, its trials and its events.
    """
    small = {"fidelity": {"max": 3}, "parameters": {"lr": 0.1}, "trials": {"max": 1}}
    small["resources"] = {"workers": workers, "cpus_per_worker": 0.5}
    small["metric"] = {"name": "loss", "goal": "maximize"}
    row = api.create(sweeps, spec_of(f"fragile_toys:{name}", **{**small, **sections}))
    api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read(row.id)]
    await_none(lambda: in_slots(sweeps.home.path))
    return api.load(sweeps, row.id).status(), api.load(sweeps, row.id).trials(), events


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_trial_goes_on_with_smaller_micro_batches_from_its_checkpoint(sweeps, workers):
    """With two ranks, the other rank is in a collective and must not be blamed."""
    status, (trial,), events = run(sweeps, "Fits", workers)
    assert (status.state, trial.state) == ("COMPLETED", "COMPLETED")
    assert (trial.shrink, trial.attempts, trial.step) == (2, 3, 3)
    assert trial.metrics == {"loss": 3.0, "first": 2.0, "shrink": 2.0}
    failures = [event for event in events if isinstance(event, Failed)]
    assert [failure.cause for failure in failures] == ["oversize"] * 2
    assert "a micro-batch did not fit" in failures[0].message.splitlines()[-1]
    orders = [event.order for event in events if isinstance(event, Ordered)]
    assert [(order.first, order.shrink) for order in orders] == [(1, 0), (2, 1), (2, 2)]
    first = next(event.saved for event in events if isinstance(event, Checkpointed))
    assert [order.start for order in orders] == [None, first, first]
