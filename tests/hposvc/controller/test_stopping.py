"""`failure.timeout`: a trial that runs for longer than the limit is killed, and fails.

If these tests fail, a far too slow configuration holds its slot for ever, or a trial is killed
that had time left.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import at_desk, fold

from hposvc.events import WIDER, Attached, Decided, Reported, Requested, from_json, to_json
from hposvc.schedulers.scheduler import NewTrial

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
