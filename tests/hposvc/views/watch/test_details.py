import io
import math

from rich.console import Console
from simulated_sweeps import make_spec
from watched_sweeps import begin, report, watched

from hposvc.events import Attached
from hposvc.views.watch import details


def text_of(drawn, width=80):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(drawn)
    return console.file.getvalue()


EVENTS = [Attached(0.0, "here:1"), *begin("t0001", 1, 1.0), report("t0001", 1, 2.0, 1, 0.5)]


def test_a_curve_has_a_head_its_axes_and_the_rungs():
    spec = make_spec(scheduler="asha")
    events = [*EVENTS, *(report("t0001", 1, 2.0 + step, step, 1 / step) for step in (2, 3))]
    text = text_of(details.curve(watched(spec, events).state, "t0001", 60, 8))
    assert text.startswith("loss 0.33333 at step 3")
    assert len(text.splitlines()) <= 8
    assert text.splitlines()[-1].split() == ["1", "3", "9"]


def test_a_trial_without_a_value_says_so():
    state = watched(make_spec(), EVENTS[:-1]).state
    assert "t0001 has no loss yet" in text_of(details.curve(state, "t0001", 60, 8))
    state = watched(make_spec(), [*EVENTS[:-1], report("t0001", 1, 2.0, 1, math.nan)]).state
    assert "no finite loss" in text_of(details.curve(state, "t0001", 60, 8))
