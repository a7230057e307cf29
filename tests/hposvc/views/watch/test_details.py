import math

from printed import text_of
from simulated_sweeps import make_spec
from sweep_stories import begin, report
from watched_sweeps import state_of

from hposvc.events import Attached
from hposvc.views.watch import details

EVENTS = [Attached(0.0, "here:1"), *begin(1, 1.0), report(1, 2.0, 1, 0.5)]


def test_a_trial_without_a_value_says_so():
    state = state_of(make_spec(), EVENTS[:-1])
    assert "t0001 has no loss yet" in text_of(details.curve(state, "t0001", 60, 8))
    state = state_of(make_spec(), [*EVENTS[:-1], report(1, 2.0, 1, math.nan)])
    assert "no finite loss" in text_of(details.curve(state, "t0001", 60, 8))
