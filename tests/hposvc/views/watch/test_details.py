import io
import math

from rich.console import Console
from simulated_sweeps import make_spec
from watched_sweeps import begin, report, watched

from hposvc.analysis.audit import of_trial
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


def test_decisions_are_those_of_the_audit_the_newest_first():
    lines = of_trial(make_spec(), EVENTS, "t0001")
    text = text_of(details.decisions(lines, "epoch"))
    assert text.index("ordered") < text.index("proposed")
    assert "reading the journal" in text_of(details.decisions(None, "epoch"))


def test_a_log_loses_its_colours_and_what_steers_a_terminal():
    text = text_of(details.log("one\n\x1b[31mtwo\x1b[0m\x1b[2J\n", 1))
    assert "two" in text
    assert "one" not in text
    assert "\x1b" not in text
    assert "nothing" in text_of(details.log("", 5))


def test_a_configuration_has_parameters_and_metrics():
    text = text_of(details.configuration(watched(make_spec(), EVENTS).state, "t0001"))
    assert "lr    0.001" in text
    assert "loss  0.5" in text
