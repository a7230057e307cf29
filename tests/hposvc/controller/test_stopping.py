"""`failure.timeout`: a trial that runs for longer than the limit is killed, and fails.

If these tests fail, a far too slow configuration holds its slot for ever, or a trial is killed
that had time left.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import Lab, at_desk, fold, make_spec, smooth

from hposvc.events import WIDER, Attached, Decided, Reported, Requested, from_json, to_json
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal, SweepRow
from hposvc.schedulers.scheduler import NewTrial
from hposvc.tracking.projection import Projection

LIMIT = {"timeout": 10, "infra_retries": 9, "user_retries": 9}


def tedious(params, step):
    """Take 0.1 to 10 seconds a step, by the learning rate."""
    return smooth(params, step)[0], 1e-5 / params["lr"] * 1e3


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


def test_it_is_failed_in_mlflow_too():
    desk = at_desk(failure=LIMIT)
    desk.happen(Attached(0.0, "here:1"))
    order = desk.start()
    pass_to(desk, 11.0)
    desk.end(order)
    projection = Projection(SweepRow("s", "s", "p", 0.0, {}, {}), desk.controller.spec)
    for event in desk.log:
        projection.apply(event)
    run = projection.take_entries()[order.trial]
    assert (run.status, run.tags["hposvc.reason"]) == ("FAILED", "timeout")


def test_without_a_limit_a_trial_runs_for_ever():
    desk = at_desk()
    desk.start()
    assert pass_to(desk, 1e9) == []


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


def test_who_was_told_to_end_is_not_told_again():
    desk = at_desk(failure=LIMIT)
    order = desk.start()
    desk.happen(Requested(9.0, "stop", order.trial))
    assert pass_to(desk, 11.0) == []
    desk.end(order)
    assert desk.state.trials[order.trial].reason == "user"


@pytest.mark.parametrize("cause", ["user", "infra", "oversize", "preempt"])
def test_that_it_breaks_off_as_it_is_killed_changes_nothing(cause):
    desk = at_desk(failure=LIMIT)
    order = desk.start()
    pass_to(desk, 11.0)
    desk.fail(order, cause)
    trial = desk.state.trials[order.trial]
    assert (trial.state, trial.reason) == ("FAILED", "timeout")


def test_one_that_came_to_its_end_meanwhile_is_complete():
    desk = at_desk(failure=LIMIT, fidelity={"max": 1})
    order = desk.start()
    pass_to(desk, 11.0)
    desk.report(order, 1, 0.5)
    desk.end(order)
    assert desk.state.trials[order.trial].state == "COMPLETED"


def test_retry_gives_it_the_whole_time_again():
    desk = at_desk(failure=LIMIT)
    order = desk.start()
    desk.report(order, 1, 0.5)
    pass_to(desk, 11.0)
    desk.end(order)
    desk.happen(Requested(20.0, "retry", order.trial))
    desk.time = 20.0
    again = desk.start()
    assert (again.trial, again.first) == (order.trial, 2)
    assert pass_to(desk, 30.0) == []
    assert pass_to(desk, 30.1) == [("kill", "timeout")]
    desk.end(again)
    trial = desk.state.trials[order.trial]
    assert (trial.state, trial.reason, trial.failures) == ("FAILED", "timeout", {"timeout": 1})
    assert trial.seconds == pytest.approx(21.1)


@pytest.fixture
def lab(tmp_path):
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


@pytest.mark.parametrize("scheduler", ["fifo", "asha", "hyperband", "median"])
def test_in_a_simulated_sweep_the_slow_ones_fail_and_the_others_do_not(lab, scheduler):
    spec = make_spec(
        engine={"type": "simulate", "curve": f"{__name__}:tedious"},
        parameters={"lr": {"min": 1e-3, "max": 1e-1, "log": True}},
        scheduler=scheduler,
        trials={"max": 24, "parallel": 4},
        failure={"timeout": 12},
    )
    lab.run(spec)
    state = check(spec, lab.events())
    late = [trial for trial in state.trials.values() if trial.reason == "timeout"]
    assert late
    for trial in state.trials.values():
        pace = tedious(trial.params, 1)[1]
        if trial in late:
            assert (trial.state, trial.values != ()) == ("FAILED", trial.step > 0)
            assert trial.seconds > 12
        else:
            assert trial.seconds <= 12 + pace, "its last step began in time"
    assert state.best not in {trial.id for trial in late}
    read = [from_json(event.kind, event.time, to_json(event)) for event in lab.events()]
    assert repr(fold(spec, read).trials) == repr(state.trials)


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
