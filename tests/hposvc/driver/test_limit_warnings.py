"""Warnings about trials that do not behave as their spec expects; each is given once."""

import logging

import pytest
from simulated_sweeps import at_desk

from hposvc.driver.limit_warnings import MissingLimitMetrics
from hposvc.events import Ended, Reported, Suggested


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "hposvc")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_limit_on_what_is_not_reported_is_told_once_with_the_nearest_name(warnings):
    desk = at_desk(limits=["latency_ms <= 20", "loss <= 5"])
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    for step in (1, 2):
        report = Reported(1.0, 1, "t0001", step, {"loss": 1.0, "latency": 3.0})
        watcher.turn(desk.state, [report])
    [said] = warnings()
    assert said.startswith("valley: t0001 reported no latency_ms, which a limit is on")
    assert "'latency'" in said


def test_a_trial_that_returns_early_is_told_once(warnings):
    desk = at_desk()
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    for _ in range(2):
        order = desk.start()
        desk.report(order, 3, 1.0)
        ended = Ended(desk.time, order.id, order.trial, "returned")
        desk.happen(ended)
        watcher.turn(desk.state, [ended])
    [said] = warnings()
    assert "ended by itself at step 3, before fidelity.max" in said


def test_a_trial_that_would_go_on_beyond_its_end_is_told_once(warnings):
    desk = at_desk()
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    for _ in range(2):
        order = desk.start()
        desk.report(order, 8, 1.0)
        desk.report(order, 9, 1.0)
        ended = Ended(desk.time, order.id, order.trial, "beyond")
        desk.happen(ended)
        watcher.turn(desk.state, [ended])
    [said] = warnings()
    assert "was ended at step 9, which is fidelity.max" in said


def test_a_trial_as_long_as_it_should_be_is_no_news(warnings):
    desk = at_desk()
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    order = desk.start()
    desk.report(order, 8, 1.0)
    desk.report(order, 9, 1.0)
    ended = Ended(desk.time, order.id, order.trial)
    desk.happen(ended)
    watcher.turn(desk.state, [ended])
    assert warnings() == []


def test_a_parameter_that_the_sweep_lacks_is_told_once(warnings):
    desk = at_desk(parameters={"lrr": {"min": 0.1, "max": 1.0}})
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    for trial in ("t0001", "t0002"):
        watcher.turn(desk.state, [Suggested(1.0, 1, trial, "lr", 0.5, {"min": 0.1, "max": 1.0})])
    [said] = warnings()
    assert said.startswith("valley: lr is drawn at random, not searched")
    assert "did the spec mean it by 'lrr'?" in said


def test_a_trial_that_reports_its_last_step_first_is_told_once(warnings):
    desk = at_desk()
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    for _ in range(2):
        order = desk.start()
        desk.report(order, 9, 1.0)
        ended = Ended(desk.time, order.id, order.trial, "beyond")
        desk.happen(ended)
        watcher.turn(desk.state, [ended])
    [said] = warnings()
    assert said.startswith("valley: t0001 reported step 9 first, which is fidelity.max")


def test_points_that_are_tried_twice_are_told_before_any_trial(warnings):
    spec = at_desk(initial=[{"lr": 1e-3}, {"lr": 1e-3}]).state.spec
    MissingLimitMetrics("valley", spec)
    [said] = warnings()
    assert said.startswith("valley: initial[1]: repeats initial[0], so the same configuration")
