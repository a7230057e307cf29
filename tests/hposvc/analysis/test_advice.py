"""What to try next while there is no best trial."""

import pytest
from simulated_sweeps import at_desk

from hposvc.analysis.verdict import verdict
from hposvc.events import Finished


def advice(desk):
    (found,) = [each for each in verdict("s", desk.state, ()).findings if each.topic == "next"]
    return found.sentence


def test_without_a_value_it_says_to_wait():
    desk = at_desk(scheduler="fifo")
    desk.start()
    assert advice(desk) == "Wait for the first value."
    desk.happen(Finished(1.0, "STOPPED", "user"))
    assert "No trial reported a value" in advice(desk)


@pytest.mark.parametrize("cause", ["user", "oom"])
def test_only_failures_are_looked_into(cause):
    desk = at_desk(scheduler="fifo")
    desk.fail(desk.start(), cause)
    assert "`hposvc logs s`" in advice(desk)


def test_values_beyond_the_limits_are_told_from_failures():
    desk = at_desk(scheduler="fifo", limits=["loss <= 0.5"])
    order = desk.start()
    desk.report(order, 1, 0.9)
    assert "No trial is within the limits" in advice(desk)
