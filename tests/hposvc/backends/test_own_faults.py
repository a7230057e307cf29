"""Trials that run out of memory or diverge, on real ranks. If these fail, such trials count as a
user error, or as a failure of the machine that is retried."""

import pytest
from engines import await_none, in_slots

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Checkpointed, Failed, Ordered

pytestmark = pytest.mark.ray


def run(sweeps, name, workers=1, **sections):
    """Run a sweep of one trial with three steps, changed by `sections`.

    Returns:
        The sweep's status, its trials and its events.
    """
    document = {
        "trainable": f"fragile_toys:{name}",
        "metric": {"name": "loss", "goal": "maximize"},
        "fidelity": {"max": 3},
        "parameters": {"lr": 0.1},
        "search": "random",
        "trials": {"max": 1, "parallel": 1},
        "resources": {"workers": workers, "cpus_per_worker": 0.5},
        "tracking": {"send_to": []},
        **sections,
    }
    row = api.create(sweeps, specs.load(document))
    api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read(row.id)]
    await_none(lambda: in_slots(sweeps.home.path))
    return api.load(sweeps, row.id).status(), api.load(sweeps, row.id).trials(), events


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_trial_goes_on_with_smaller_micro_batches_from_its_checkpoint(sweeps, workers):
    """With two ranks, the other rank is in a collective and must not be blamed."""
    status, (trial,), events = run(sweeps, "Fits", workers)
    assert (status["state"], trial["state"]) == ("COMPLETED", "COMPLETED")
    assert (trial["shrink"], trial["attempts"], trial["step"]) == (2, 3, 3)
    assert trial["metrics"] == {"loss": 3.0, "first": 2.0, "shrink": 2.0}
    failures = [event for event in events if isinstance(event, Failed)]
    assert [failure.cause for failure in failures] == ["oversize"] * 2
    assert "a micro-batch did not fit" in failures[0].message.splitlines()[-1]
    orders = [event.order for event in events if isinstance(event, Ordered)]
    assert [(order.first, order.shrink) for order in orders] == [(1, 0), (2, 1), (2, 2)]
    first = next(event.saved for event in events if isinstance(event, Checkpointed))
    assert [order.start for order in orders] == [None, first, first]


def test_where_one_sample_does_not_fit_the_trial_has_failed_for_good(sweeps):
    values = {"lr": 0.1, "last": {"values": [0, 3]}}
    status, trials, _ = run(
        sweeps, "Fits", parameters=values, search="grid", trials={"max": 2, "parallel": 1}
    )
    assert status["state"] == "COMPLETED"
    outcomes = [
        (trial["params"]["last"], trial["state"], trial["reason"], trial["shrink"])
        for trial in trials
    ]
    assert sorted(outcomes) == [(0, "COMPLETED", "", 2), (3, "FAILED", "oom", 2)]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_trial_that_says_it_diverged_is_stopped_and_not_tried_again(sweeps, workers):
    failure = {"nan": "skip", "user_retries": 5, "infra_retries": 5}
    status, (trial,), events = run(sweeps, "Diverges", workers, failure=failure)
    assert status["state"] == "FAILED", "no trial has a value"
    assert (trial["state"], trial["reason"]) == ("STOPPED", "diverged")
    assert (trial["value"], trial["step"], trial["attempts"]) == (None, 2, 1)
    [failed] = [event for event in events if isinstance(event, Failed)]
    assert (failed.cause, failed.message) == ("diverged", "nan: skip was of no use")


def test_a_function_is_told_that_it_can_t_do_as_failure_nan_says(sweeps):
    _, (trial,), events = run(sweeps, "function", failure={"nan": "rollback"})
    assert (trial["state"], trial["reason"]) == ("FAILED", "user")
    [failed] = [event for event in events if isinstance(event, Failed)]
    assert "failure.nan is rollback, but fragile_toys:function makes its" in failed.message
