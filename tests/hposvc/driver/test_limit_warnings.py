"""Warnings about trials that do not behave as their spec expects; each is given once."""

import logging

import pytest
from simulated_sweeps import at_desk

from hposvc.driver.limit_warnings import MissingLimitMetrics
from hposvc.events import Ended, Reported


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "hposvc")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_limit_on_what_is_not_reported_is_told_once_with_the_nearest_name(warnings):
    desk = at_desk(limits=["latency_ms <= 20", "loss <= 5"])
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    for step in (1, 2):
        report = Reported(1.0, 1, "t0001", step, {"loss": 1.0, "latency": 3.0})
        watcher.on_events(desk.state, [report])
    [said] = warnings()
    assert said.startswith("valley: t0001 reported no latency_ms, which a limit is on")
    assert "'latency'" in said


def test_points_that_are_tried_twice_are_told_before_any_trial(warnings):
    spec = at_desk(initial=[{"lr": 1e-3}, {"lr": 1e-3}]).state.spec
    MissingLimitMetrics("valley", spec)
    [said] = warnings()
    assert said.startswith("valley: initial[1]: repeats initial[0], so the same configuration")


def test_steps_told_again_with_other_values_are_told_once_a_trial(warnings):
    desk = at_desk()
    desk.start()
    watcher = MissingLimitMetrics("valley", desk.state.spec)
    end = Ended(2.0, 1, "t0001", "returned", warning="step 1 was reported before")
    watcher.on_events(desk.state, [end])
    watcher.on_events(desk.state, [end])
    assert warnings() == ["valley: t0001: step 1 was reported before"]
