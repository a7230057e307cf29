"""`failure.timeout` kills a trial that runs too long, `stop.worth` ends a sweep that gains little.

If these tests fail, a far too slow configuration holds its slot for ever, or a trial is killed
that had time left.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import at_desk, fold

from hposvc.events import WIDER, Attached, Decided, Ended, Reported, Requested, from_json, to_json
from hposvc.schedulers.scheduler import NewTrial
from hposvc.views.formatting import why_ended

LIMIT = {"timeout": 10, "infra_retries": 9, "user_retries": 9}


def pass_to(desk, time):
    """Let time pass, and return the decisions that are due then."""
    desk.time = time
    due = desk.controller.expire(time)
    for event in due:
        desk.happen(event)
    return [(event.verdict, event.reason) for event in due if isinstance(event, Decided)]


def test_a_trial_that_runs_too_long_is_killed_and_fails():
    desk = at_desk(failure=LIMIT)
    order = desk.start()
    desk.report(order, 1, 0.5)
    assert pass_to(desk, 10.0) == []
    assert pass_to(desk, 10.1) == [("kill", "timeout")]
    assert pass_to(desk, 10.2) == [], "it is told once"
    desk.end(order)
    trial = desk.state.trials[order.trial]
    assert (trial.state, trial.reason) == ("FAILED", "timeout")
    assert trial.message == "it had run for 10.1 s, and failure.timeout is 10 s"
    assert trial.failures == {"timeout": 1}
    assert isinstance(desk.controller.next(), NewTrial), "it is not tried again"
    seen = trial.observation()
    assert (seen.state, seen.reason, seen.loss) == ("failed", "timeout", None)
    assert desk.state.best is None


@pytest.mark.parametrize(
    ("unit", "wanted"),
    [
        ("trials", "1 for 20 trials"),
        ("cpu_hours", "1 for 20 CPU-hours"),
        ("energy_kwh", "1 for 20 kWh"),
    ],
)
def test_a_sweep_that_promises_less_than_it_costs_starts_no_trials(unit, wanted):
    """The running ones go on; why it ended is said with what was promised."""
    worth = {"worth": {"gain": 1, unit: 20}}
    desk = at_desk(
        trainable="toys:obedient",
        engine="ray",  # a simulation measures no energy
        stop=worth,
        scheduler="fifo",
        fidelity={"max": 1},
        trials={"max": 40, "parallel": 2},
    )
    other = desk.start()
    for loss in (1.0, 0.9, 0.95, 0.97, 0.93, 0.96, 0.94, 0.92):
        order = desk.start()
        desk.report(order, 1, loss)
        desk.time += 7200.0
        desk.happen(Ended(desk.time, order.id, order.trial, energy_kwh=2.0))
    assert desk.state.closed == "worth"
    assert desk.state.trials[other.trial].state == "RUNNING"
    promised, asked = desk.state.closed_detail.split("; ")
    assert promised.startswith("20 more trials are expected to gain 0.0")
    assert promised.endswith(" in loss" if unit == "trials" else f" in loss for 40 {wanted[9:]}")
    assert asked == f"stop.worth asks for {wanted}"
    desk.report(other, 1, 0.1)
    desk.end(other)
    desk.happen(desk.controller.finish(desk.time))
    assert desk.state.state == "COMPLETED"
    assert why_ended(desk.state) == desk.state.closed_detail


def test_a_trial_that_is_to_grow_has_no_more_time_than_others():
    """Nothing else hurries the trial to its next report, so it could take for ever."""
    desk = at_desk(failure=LIMIT)
    order = desk.start()
    desk.report(order, 1, 0.5)
    desk.happen(Decided(2.0, order.trial, order.id, 1, "park", WIDER))
    assert pass_to(desk, 10.1) == [("kill", "timeout")]
    desk.end(order)
    assert desk.state.trials[order.trial].state == "FAILED"


def test_the_time_of_all_its_orders_counts_and_none_between_them():
    desk = at_desk(failure=LIMIT)
    first = desk.start()
    desk.time = 6.0
    desk.fail(first, "infra")
    desk.time = 100.0
    second = desk.start()
    assert second.trial == first.trial
    assert pass_to(desk, 104.0) == []
    assert pass_to(desk, 104.1) == [("kill", "timeout")]


def test_the_time_without_a_driver_does_not_count():
    desk = at_desk(failure=LIMIT)
    desk.happen(Attached(0.0, "here:1"))
    order = desk.start()
    desk.time = 6.0
    desk.report(order, 1, 0.5)
    desk.time = 500.0
    desk.happen(Attached(500.0, "here:2"))
    desk.start()
    assert pass_to(desk, 503.0) == []
    assert pass_to(desk, 504.1) == [("kill", "timeout")]


DEEDS = ["report", "end", "infra", "user", "attach", "retry"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.floats(0.0, 6.0)), max_size=30))
def test_whatever_happens_no_trial_runs_on_beyond_its_time(deeds):
    """The journal must give the same states, too."""
    desk = at_desk(failure=LIMIT, trials={"max": 3, "parallel": 1}, fidelity={"max": 4})
    for deed, seconds in deeds:
        desk.cool()
        if not desk.state.trials.orders and type(desk.controller.next()).__name__ in (
            "Order",
            "NewTrial",
        ):
            desk.start()
        pass_to(desk, desk.time + seconds)
        for trial in list(desk.state.trials.running()):
            intent = trial.intent and (trial.intent.verdict, trial.intent.reason)
            assert trial.ran_s(desk.time) <= LIMIT["timeout"] or intent == ("kill", "timeout")
            act(desk, trial, deed)
    for trial in desk.state.trials.values():
        assert (trial.reason == "timeout") == (trial.failures.get("timeout") == 1)
        assert trial.reason != "timeout" or trial.state == "FAILED"
    read = [from_json(event.kind, event.time, to_json(event)) for event in desk.log]
    assert repr(fold(desk.controller.spec, read).trials) == repr(desk.state.trials)


def act(desk, trial, deed):
    """Let something happen to the trial that has the slot; a killed trial ends."""
    order = trial.order
    if deed == "attach":
        desk.happen(Attached(desk.time, "here:2"))
    elif deed == "retry":
        desk.happen(Requested(desk.time, "retry"))
    elif trial.intends("stop") or trial.step >= order.until or deed == "end":
        desk.end(order)
    elif deed == "report":
        desk.happen(Reported(desk.time, order.id, trial.id, trial.step + 1, {"loss": 0.5}))
    else:
        desk.fail(order, deed)
