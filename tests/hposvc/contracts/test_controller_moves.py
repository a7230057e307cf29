"""Schedulers' further moves: pauses, stops of waiting trials, copies with other values."""

import pytest
from simulated_sweeps import at_desk

from hposvc.events import Attached, Decided


@pytest.fixture
def desk():
    """Return a desk with two trials, paused at step 3; t0001 is the better one."""
    return paused(at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2}))


def paused(desk, save=True):
    first, second = desk.start(lr=0.01), desk.start(lr=0.04)
    for order, loss in ((first, 0.2), (second, 0.7)):
        for step in (1, 2, 3):
            desk.report(order, step, loss / step, save)
    for order in (first, second):
        if desk.state.trials[order.trial].order is not None:
            desk.end(order)
    return desk


def restart(desk):
    """Attach another driver, which finds the orders of the last one lost."""
    desk.happen(Attached(desk.time, "here:2"))


def test_a_pause_that_the_driver_s_death_cut_short_is_a_pause():
    desk = at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2})
    order = desk.start()
    for step in (1, 2, 3):
        desk.report(order, step, 0.5)
    restart(desk)
    assert desk.state.trials[order.trial].state == "PAUSED"
    assert order.trial not in desk.state.trials.waiting


def test_a_pause_that_is_not_heeded_is_enforced_and_stays_a_pause():
    """Otherwise a rank that hangs while it pauses would hold its slot for ever."""
    desk = at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2})
    order = desk.start()
    for step in (1, 2, 3):
        desk.report(order, step, 0.5)
    assert desk.controller.expire(59.0) == []
    [kill] = desk.controller.expire(61.0)
    assert (kill.trial, kill.order, kill.verdict, kill.reason) == ("t0001", 1, "kill", "pause")
    desk.happen(kill)
    assert desk.controller.expire(200.0) == []
    desk.end(order)
    assert desk.state.trials["t0001"].state == "PAUSED"


def test_what_a_trial_does_after_a_pause_that_it_ignores_is_not_counted():
    desk = at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2})
    order = desk.start()
    for step in (1, 2, 3, 4, 5):
        desk.report(order, step, 0.5)
    desk.end(order)
    trial = desk.state.trials["t0001"]
    assert (trial.state, trial.step) == ("PAUSED", 3)


def test_a_value_is_shown_with_the_values_that_made_it():
    metric = {"name": "loss", "goal": "minimize", "select": "best"}
    desk = at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2}, metric=metric)
    paused(desk)
    desk.start()
    copy = desk.start()
    desk.report(copy, 4, 0.9)
    trial = desk.state.trials["t0002"]
    assert trial.params == {"lr": 0.005}
    assert (trial.selected[0], trial.reported_params) == (3, {"lr": 0.04})
    desk.report(copy, 5, 0.01)
    assert (trial.selected[0], trial.reported_params) == (5, {"lr": 0.005})


def test_a_copy_has_all_its_patience_before_it_rests():
    scheduler = {"type": "seesaw:Seesaw", "plateau": {"patience": 3}}
    desk = paused(at_desk(scheduler=scheduler, trials={"max": 2}))
    desk.start()
    copy = desk.start()
    for step, loss in ((4, 0.9), (5, 0.9), (6, 0.9)):
        assert desk.report(copy, step, loss) == []
    [rest] = desk.report(copy, 7, 0.9)
    assert (rest.verdict, rest.reason) == ("stop", "plateau")


def test_a_trial_that_can_t_repeat_its_steps_as_they_were_fails():
    """A replay whose checkpoint is damaged: earlier steps had other values."""
    schedule = [{"after": 4, "values": {"lr": 0.005}}]
    desk = at_desk(scheduler={"type": "replay", "schedule": schedule}, trials={"max": 1})
    order = desk.start(lr=0.01)
    for step in (1, 2, 3, 4):
        desk.report(order, step, 0.5)
    desk.end(order)
    again = desk.start()
    assert (again.first, again.params) == (5, {"lr": 0.005})
    desk.fail(again, "infra", damaged=True)
    trial = desk.state.trials["t0001"]
    assert (trial.state, trial.reason) == ("FAILED", "damaged")


def test_a_copy_goes_on_from_the_donor_s_weights_by_its_own_clock_with_other_values(desk):
    own, copy = desk.start(), desk.start()
    assert (own.trial, own.start.path, own.parent, own.first) == ("t0001", "t0001/1-3", None, 4)
    assert (copy.trial, copy.start.path, copy.parent, copy.first) == (
        "t0002",
        "t0001/1-3",
        "t0001",
        4,
    )
    assert copy.params == {"lr": 0.005}
    lives = desk.state.trials["t0002"].segments
    assert [(life.after, life.params["lr"], life.parent) for life in lives] == [
        (0, 0.04, None),
        (3, 0.005, "t0001"),
    ]


def test_a_copy_that_is_lost_later_goes_on_from_its_own_checkpoint(desk):
    _, copy = desk.start(), desk.start()
    desk.report(copy, 4, 0.6)
    desk.report(copy, 5, 0.6)
    desk.fail(copy, "infra")
    again = desk.start()
    assert (again.start.path, again.parent, again.first) == (f"t0002/{copy.id}-5", None, 6)
    assert again.params == copy.params


def test_a_checkpoint_that_is_lent_is_kept_until_the_copy_has_its_own(desk):
    own, copy = desk.start(), desk.start()
    for step in (4, 5, 6, 7, 8, 9):
        desk.report(own, step, 0.01)
    desk.end(own)
    dropped = desk.state.checkpoints.dropped
    assert copy.start.path not in {saved.path for saved in dropped}
    for step in (4, 5):
        desk.report(copy, step, 0.6)
    assert copy.start.path not in {saved.path for saved in dropped}  # a rank may still read it
    for step in (6, 7, 8, 9):
        desk.report(copy, step, 0.6)
    desk.end(copy)
    assert copy.start.path in {saved.path for saved in dropped}
    assert desk.state.checkpoints.lent == {}


def test_a_donor_s_damaged_checkpoint_is_not_copied_twice(desk):
    _, copy = desk.start(), desk.start()
    damaged = copy.start
    desk.fail(copy, "infra", damaged=True)
    again = desk.start()
    assert again.trial == "t0002"
    assert again.start != damaged
    assert damaged not in desk.state.trials["t0001"].checkpoints


def test_a_trial_without_a_checkpoint_can_t_be_copied_and_is_told_so():
    desk = at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2})
    order = desk.start()
    for step in (1, 2):
        desk.report(order, step, 0.5, save=False)
    decided, closed, *_ = desk.report(order, 3, 0.5, save=False)
    assert (decided.verdict, decided.reason) == ("stop", "no checkpoint")
    assert closed.reason == "failures", "for no other trial will have one either"
    desk.end(order)
    end = desk.controller.finish(1.0)
    assert (end.state, end.reason.partition(":")[0]) == (
        "FAILED",
        "no trial can go on, as none has written a checkpoint; t0001",
    )
    assert desk.state.trials["t0001"].reason == "no checkpoint"


def test_a_trial_without_a_checkpoint_ends_alone_where_others_write_them():
    desk = at_desk(scheduler={"type": "seesaw:Seesaw"}, trials={"max": 2})
    order, other = desk.start(), desk.start()
    desk.report(other, 1, 0.5)
    for step in (1, 2):
        desk.report(order, step, 0.5, save=False)
    [decided] = desk.report(order, 3, 0.5, save=False)
    assert (decided.verdict, decided.reason) == ("stop", "no checkpoint")


def test_a_trial_that_waits_in_vain_is_stopped():
    scheduler = {"type": "seesaw:Seesaw", "cuts": True}
    desk = paused(at_desk(scheduler=scheduler, trials={"max": 2}))
    [cut] = desk.controller.stop_hopeless(desk.time)
    assert isinstance(cut, Decided)
    assert (cut.trial, cut.order, cut.verdict, cut.reason) == ("t0002", None, "stop", "seesaw")
    desk.happen(cut)
    assert desk.state.trials["t0002"].state == "STOPPED"
    assert list(desk.controller.stop_hopeless(desk.time)) == []
    assert desk.start().trial == "t0001"
