"""Decisions: milestones, targets, budgets, and what people ask for."""

import math

import pytest
from simulated_sweeps import at_desk

from hposvc.events import Attached, Closed, Decided, Reported, Requested
from hposvc.schedulers import scheduler as facts
from hposvc.schedulers.scheduler import SearchDone, Wait

STOP, PROMOTE = {"type": "asha"}, {"type": "asha", "mode": "promote"}


def decisions(events):
    return [(e.trial, e.verdict, e.reason) for e in events if isinstance(e, Decided)]


def test_a_report_that_steps_over_a_milestone_is_judged_there():
    desk = at_desk(scheduler=STOP)
    [decided] = desk.report(desk.start(), 2, 0.5)
    assert (decided.step, decided.verdict) == (1, "continue")
    [decided] = desk.report(desk.start(), 2, 0.6)
    assert (decided.step, decided.verdict) == (1, "stop")
    assert (decided.reason, decided.detail) == ("rung", "rank 2 of 2 at step 1, top 1 continue")


@pytest.mark.parametrize("scheduler", [STOP, PROMOTE])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_value_that_is_not_finite_ends_its_trial(scheduler, value):
    desk = at_desk(scheduler=scheduler)
    order = desk.start()
    assert decisions(desk.report(order, 1, value)) == [(order.trial, "stop", "diverged")]
    desk.end(order)
    trial = desk.state.trials[order.trial]
    assert (trial.state, trial.reason, trial.value) == ("STOPPED", "diverged", None)
    assert desk.start().trial != order.trial


def test_a_lost_slot_is_given_back_at_the_rung_and_the_decision_comes_after():
    desk = at_desk(scheduler=STOP)
    order = desk.start()
    desk.controller.lost = {order.id}
    assert decisions(desk.report(order, 1, 0.5)) == [(order.trial, "park", "queue")]
    assert decisions(desk.end(order)) == [(order.trial, "continue", "rung")]
    again = desk.start()
    assert (again.trial, again.first) == (order.trial, 2)


def test_a_trial_that_a_rung_stops_gives_its_slot_back_so():
    desk = at_desk(scheduler=STOP)
    best, worse = desk.start(), desk.start()
    desk.report(best, 1, 0.1)
    desk.controller.lost = {worse.id}
    assert decisions(desk.report(worse, 1, 0.9)) == [(worse.trial, "stop", "rung")]


def test_a_trial_without_a_checkpoint_keeps_its_slot():
    desk = at_desk(scheduler=STOP)
    order = desk.start()
    desk.controller.lost = {order.id}
    assert decisions(desk.report(order, 1, 0.5, save=False)) == [(order.trial, "continue", "rung")]


def test_a_higher_priority_ends_orders_at_once_and_they_are_no_failures():
    desk = at_desk(scheduler=STOP)
    urgent, late, other = (desk.start() for _ in range(3))
    ends = desk.controller.give_back({urgent.id}, {late.id}, desk.time)
    assert decisions(ends) == [(urgent.trial, "park", "priority"), (late.trial, "park", "queue")]
    for end in ends:
        desk.happen(end)
    assert desk.controller.give_back({urgent.id}, {late.id}, desk.time) == []
    desk.keep(urgent, 0, within=7)
    desk.fail(urgent, "preempt")
    desk.end(late)
    trials = desk.state.trials
    assert [trials[order.trial].state for order in (urgent, late, other)] == [
        *("PENDING", "PENDING"),
        "RUNNING",
    ]
    assert not trials[urgent.trial].failures
    assert {desk.start().trial, desk.start().trial} == {urgent.trial, late.trial}


def test_only_an_urgent_end_is_enforced_after_the_grace():
    desk = at_desk(scheduler=STOP, failure={"grace": 10})
    urgent, late = desk.start(), desk.start()
    for end in desk.controller.give_back({urgent.id}, {late.id}, desk.time):
        desk.happen(end)
    assert decisions(desk.controller.expire(desk.time + 11)) == [(urgent.trial, "kill", "pause")]


def test_retries_come_before_new_trials_in_the_order_of_their_loss():
    desk = at_desk(failure={"user_retries": 1})
    first, second = desk.start(), desk.start()
    desk.fail(second, "user")
    desk.fail(first, "user")
    assert [desk.start().trial for _ in range(3)] == [second.trial, first.trial, "t0003"]


def test_the_last_proposal_closes_the_sweep():
    desk = at_desk(trials={"max": 2})
    desk.start()
    assert desk.state.closed is None
    last = desk.start()
    assert desk.state.closed == "trials"
    assert desk.controller.next() == Wait()
    assert last.trial == "t0002"


@pytest.mark.parametrize(("goal", "value"), [("minimize", 0.2), ("maximize", 0.8)])
def test_the_target_stops_everything_and_says_so(goal, value):
    metric = {"name": "loss", "goal": goal, "select": "best", "target": value}
    desk = at_desk(metric=metric, scheduler=STOP)
    one, other = desk.start(), desk.start()
    follows = desk.report(one, 1, value)
    assert follows[0] == Closed(0.0, "target")
    assert decisions(follows) == [(one.trial, "stop", "target"), (other.trial, "stop", "target")]
    assert desk.controller.next() == Wait()
    desk.end(one)
    assert desk.report(other, 1, value) == []
    desk.end(other)
    assert desk.controller.next() == SearchDone()
    end = desk.controller.finish(1.0)
    assert (end.state, end.reason) == ("COMPLETED", "target")
    assert {trial.reason for trial in desk.state.trials.values()} == {"target"}


@pytest.mark.parametrize("select", ["last", "mean_2"])
def test_a_value_that_may_become_worse_meets_no_target_before_the_end(select):
    """Where losses rise with the step, the first report of every trial would meet it."""
    desk = at_desk(metric={"name": "loss", "goal": "minimize", "select": select, "target": 0.2})
    order, early = desk.start(), desk.start()
    for step in range(1, 9):
        assert desk.report(order, step, 0.1) == []
    desk.report(early, 1, 0.1)
    assert desk.report(order, 9, 0.1)[0] == Closed(0.0, "target")


def test_a_trial_that_returns_meets_the_target_by_its_result():
    metric = {"name": "loss", "goal": "minimize", "target": 0.2}
    desk = at_desk(metric=metric)
    order = desk.start()
    assert desk.report(order, 3, 0.1) == []
    assert desk.end(order)[0] == Closed(0.0, "target")


def test_a_trial_that_fails_after_the_target_gets_no_retry():
    metric = {"name": "loss", "goal": "minimize", "select": "best", "target": 0.2}
    desk = at_desk(metric=metric, failure={"user_retries": 9})
    lost, winner = desk.start(), desk.start()
    desk.fail(lost, "infra")
    desk.report(winner, 1, 0.1)
    desk.fail(winner, "user")  # it was told to stop: that it broke off does not matter
    assert desk.controller.next() == SearchDone()
    desk.happen(desk.controller.finish(1.0))
    states = [(trial.state, trial.reason) for trial in desk.state.trials.values()]
    assert states == [("STOPPED", "target")] * 2


def test_a_kill_of_the_sweep_reaches_trials_that_were_told_to_stop():
    desk = at_desk()
    order = desk.start()
    desk.happen(Requested(0.0, "stop"))
    assert decisions(desk.happen(Requested(1.0, "kill"))) == [(order.trial, "kill", "user")]


def test_a_stop_that_is_not_heeded_is_enforced_once_after_the_grace():
    desk = at_desk(budget={"wall": 100}, failure={"grace": 60})
    desk.happen(Attached(0.0, "here:1"))
    order = desk.start()
    for event in desk.controller.expire(100.0):
        desk.happen(event)
    assert desk.controller.expire(159.0) == []
    follows = desk.controller.expire(161.0)
    assert decisions(follows) == [(order.trial, "kill", "budget")]
    for event in follows:
        desk.happen(event)
    assert desk.controller.expire(500.0) == []


def test_what_an_earlier_driver_had_not_decided_is_decided_at_the_start():
    """It died between a report at a milestone and the decision."""
    desk = at_desk(scheduler=STOP)
    good, poor = desk.start(), desk.start()
    desk.report(good, 1, 0.1)
    desk.controller.apply(Reported(0.0, poor.id, poor.trial, 1, {"loss": 0.9}))
    follows = desk.happen(Attached(1.0, "here:2"))
    assert decisions(follows) == [(poor.trial, "stop", "rung")]
    assert desk.state.trials[poor.trial].state == "STOPPED"
    order = desk.start()
    assert (order.trial, order.first, order.milestones) == (good.trial, 2, (3,))


def test_a_retried_trial_is_to_its_scheduler_one_that_was_slow():
    """Otherwise each scheduler has to know what a retry is."""
    desk = at_desk(scheduler="fifo", trials={"max": 2})
    failed, other = desk.start(), desk.start()
    desk.report(failed, 1, 0.5)
    desk.fail(failed, "user")
    desk.report(other, 1, 0.4)
    assert facts.Left("t0001") in desk.controller.facts_told
    before = desk.controller.scheduler
    desk.happen(Requested(desk.time, "retry", "t0001"))
    assert desk.controller.facts_told == [
        facts.Ordered("t0001", 9),
        facts.Closed(),
        facts.Ordered("t0002", 9),
        facts.Report("t0001", 1, 0.5),
        facts.Report("t0002", 1, 0.4),
        facts.Closed(),
    ]
    assert desk.controller.scheduler is not before
    assert desk.controller.scheduler.running == {"t0001", "t0002"}


def test_an_extended_sweep_has_a_scheduler_of_its_new_length_that_knows_what_completed():
    desk = at_desk(
        scheduler={"type": "asha", "eta": 3}, fidelity={"min": 1, "max": 9}, trials={"max": 1}
    )
    order = desk.start()
    for step in range(1, 10):
        desk.report(order, step, 1 / step)
    desk.end(order)
    desk.happen(desk.controller.finish(desk.time))
    desk.happen(Requested(desk.time, "extend", changes={"fidelity.max": 27, "trials.max": 2}))
    scheduler = desk.controller.scheduler
    assert (scheduler.last, scheduler.steps, scheduler.closed) == (27, (1, 3, 9), False)
    assert {step: len(rung) for step, rung in scheduler.rungs.items()} == {1: 1, 3: 1, 9: 1}
    again = desk.start()
    assert (again.trial, again.first, again.until) == ("t0001", 10, 27)
