"""What a journal shows about the cost of trials."""

import math

import pytest
from simulated_sweeps import make_spec
from sweep_stories import trial, trial_name

from hposvc.analysis.forecast.evidence import read
from hposvc.events import Attached, Failed


def test_failures_are_told_apart_by_fault_and_by_time():
    events = [Attached(0.0, "here:1"), *trial(1, [1.0] * 4, step_s=1.0, until=4)]
    for number, (cause, reports) in enumerate([("oom", 0), ("user", 2), ("infra", 2)], 2):
        failed = Failed(9.0, number, trial_name(number), cause, "no")
        events += trial(number, [1.0] * reports, step_s=1.0, end=failed, until=4)
    found = read(make_spec(), events, "earlier")
    assert (found.failed_at_once, found.failed_later, found.lost) == (1, 1, 1)


def test_curves_are_compared_in_units_of_the_spread_between_trials(lab):
    spec = make_spec(trials={"max": 40, "parallel": 4})  # falls by 1/step, spread by log10(lr)^2
    lab.run(spec)
    found = read(spec, lab.events(), "earlier", "s")
    assert found.curves.trials == 40
    assert found.curves.spread == pytest.approx(1.2, abs=0.8)
    assert found.curves.fall * found.curves.spread == pytest.approx(0.38, abs=0.02)
    assert math.isfinite(found.speed_rank)
    assert found.speed_pairs == 40
