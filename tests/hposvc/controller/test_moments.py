"""When a moment of `notify` comes: once, and again only when there is something new to say."""

import pytest
from simulated_sweeps import Lab, at_desk, fold, make_several, make_spec

from hposvc.controller import moments
from hposvc.events import Alerted, Attached, Requested
from hposvc.journal.journal import SweepRow


def telling(*on):
    return {"notify": {"webhook": "https://hooks.example.org/x", "on": list(on)}}


def pass_to(desk, time):
    """Let time pass, and return what is told then."""
    desk.time = time
    events = desk.controller.expire(time)
    for event in events:
        desk.happen(event)
    return [event for event in events if isinstance(event, Alerted)]


def test_a_new_best_is_told_once_a_minute_and_the_latest_wins():
    desk = at_desk(**telling("new_best"))
    first, second = desk.start(), desk.start()
    desk.report(first, 1, 0.5)
    (alert,) = pass_to(desk, 1.0)
    assert (alert.what, alert.trial, alert.value) == ("new_best", "t0001", 0.5)
    assert alert.text == "new best loss 0.5, t0001 at step 1"
    desk.report(second, 1, 0.4)
    assert pass_to(desk, 2.0) == []
    desk.report(second, 2, 0.3)
    desk.report(first, 2, 0.6)
    assert pass_to(desk, 60.9) == []
    (alert,) = pass_to(desk, 61.0)
    assert (alert.trial, alert.value) == ("t0002", 0.3)
    assert pass_to(desk, 1000.0) == []


def test_with_several_metrics_new_trials_on_the_front_are_told(tmp_path):
    lab = Lab.at(tmp_path)
    spec = make_several(**telling("new_best"))
    lab.run(spec)
    alerts = [event for event in lab.events() if isinstance(event, Alerted)]
    assert alerts[0].text.startswith("new on the front of 1 trials: t0")
    assert all(alert.value is None for alert in alerts)


def test_failed_trials_are_told_together_once_a_minute():
    desk = at_desk(**telling("trial_failed"), stop={"max_failed": {"share": 1.0, "after": 50}})
    orders = [desk.start() for _ in range(4)]
    desk.fail(orders[0], "user")
    (alert,) = pass_to(desk, 1.0)
    assert (alert.trial, alert.text) == ("t0001", "t0001 failed: user it was")
    for order in orders[1:3]:
        desk.fail(order, "user")
    assert pass_to(desk, 2.0) == []
    (alert,) = pass_to(desk, 62.0)
    assert alert.text == "2 trials failed; t0003: user it was"
    desk.happen(Requested(63.0, "retry"))
    assert pass_to(desk, 200.0) == []
    desk.fail(desk.start(), "user")
    (alert,) = pass_to(desk, 300.0)
    assert alert.trial == "t0001"


def test_a_plateau_is_told_once_until_the_best_improves():
    desk = at_desk(**telling({"plateau": 2}))

    def complete(loss):
        order = desk.start()
        desk.report(order, 9, loss)
        desk.end(order)

    for loss in (0.5, 0.6):
        complete(loss)
    assert pass_to(desk, 1.0) == []
    complete(0.7)
    (alert,) = pass_to(desk, 2.0)
    assert (alert.what, alert.at) == ("plateau", 2.0)
    assert alert.text == "no better value in the last 2 trials"
    complete(0.8)
    assert pass_to(desk, 3.0) == []
    for loss in (0.1, 0.2, 0.3):
        complete(loss)
    assert len(pass_to(desk, 4.0)) == 1


@pytest.mark.parametrize(("name", "limit", "more"), [("wall", 100, 150), ("cost", 2, 3)])
def test_each_share_of_the_budget_is_told_once_and_again_when_the_budget_grows(name, limit, more):
    """The one trial holds a worker all the time, and a second of it costs 0.02."""
    price = {"worker_hour": 72}
    desk = at_desk(**telling("budget"), budget={name: limit}, price=price)
    desk.happen(Attached(0.0, "here:1"))
    desk.start()
    assert pass_to(desk, 49.0) == []
    (alert,) = pass_to(desk, 51.0)
    assert (alert.at, alert.text) == (0.5, "51% of the budget is used")
    assert pass_to(desk, 60.0) == []
    assert [alert.at for alert in pass_to(desk, 100.0)] == [0.8, 1.0]
    desk.happen(Requested(100.0, "extend", changes={f"budget.{name}": more}))
    assert [alert.at for alert in pass_to(desk, 101.0)] == [0.5]


def test_a_stall_is_told_once_until_something_is_reported():
    desk = at_desk(**telling({"stalled": "10m"}))
    desk.happen(Attached(0.0, "here:1"))
    assert pass_to(desk, 599.0) == []
    (alert,) = pass_to(desk, 600.0)
    assert alert.text.startswith("nothing has run for 10m: no slot is free")
    assert pass_to(desk, 5000.0) == []
    order = desk.start()
    desk.report(order, 1, 0.5)
    assert pass_to(desk, 5599.0) == []
    (alert,) = pass_to(desk, 5600.0)
    assert alert.text == "no trial has reported for 10m; running: t0001"


@pytest.mark.parametrize("stop_at", range(1, 60, 14))
def test_wherever_a_driver_dies_no_moment_is_told_twice_in_the_same_situation(tmp_path, stop_at):
    lab = Lab.at(tmp_path)
    on = ("new_best", "trial_failed", {"plateau": [2, 4]}, {"budget": ["10%", "50%"]})
    spec = make_spec(
        **telling(*on),
        budget={"wall": 4000},
        engine={"type": "simulate", "curve": "simulated_sweeps:slow"},
    )
    lab.journal.create(SweepRow("s", "s", "p", 0.0, {}, {}))
    lab.run(spec)
    events = lab.events()
    whole = [event for event in events if isinstance(event, Alerted)]
    assert {"new_best", "budget", "plateau"} <= {event.what for event in whole}
    state = fold(spec, events[:stop_at])
    now = events[stop_at - 1].time
    known = {(event.what, event.at, event.text) for event in events[:stop_at] if event in whole}
    assert known.isdisjoint((event.what, event.at, event.text) for event in moments.due(state, now))
