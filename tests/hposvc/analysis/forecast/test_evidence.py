"""What a journal shows about the cost of trials."""

import math

import pytest
from simulated_sweeps import Lab, make_spec

from hposvc.analysis.forecast.evidence import read
from hposvc.events import Attached, Ended, Failed, Ordered, Proposed, Reported
from trainables.order import Order


def trial(number, start_s, step_s, steps, begin_s=2.0, tail_s=1.0):
    """Return the events of a trial whose order takes `begin_s` longer than its steps."""
    name = f"t{number:04d}"
    order = Order(number, name, {"lr": 0.1}, None, 1, steps)
    reports = [
        Reported(start_s + begin_s + step * step_s, number, name, step, {"loss": number / step})
        for step in range(1, steps + 1)
    ]
    return [
        Proposed(start_s, name, {"lr": 0.1}, {}, steps),
        Ordered(start_s, order),
        *reports,
        Ended(reports[-1].time + tail_s, number, name),
    ]


def test_failures_are_told_apart_by_fault_and_by_time():
    def failing(number, cause, reports):
        events = trial(number, 0.0, 1.0, 4)
        failed = Failed(9.0, number, f"t{number:04d}", cause, "no")
        return [*events[: 2 + reports], failed]

    events = [Attached(0.0, "here:1"), *trial(1, 0.0, 1.0, 4)]
    for number, (cause, reports) in enumerate([("oom", 0), ("user", 2), ("infra", 2)], 2):
        events += failing(number, cause, reports)
    found = read(make_spec(), events, "earlier")
    assert (found.failed_at_once, found.failed_later, found.lost) == (1, 1, 1)


def test_curves_are_compared_in_units_of_the_spread_between_trials(journal, tmp_path):
    spec = make_spec(trials={"max": 40, "parallel": 4})  # falls by 1/step, spread by log10(lr)^2
    lab = Lab(journal, tmp_path)
    lab.run(spec)
    found = read(spec, lab.events(), "earlier", "s")
    assert found.curves.trials == 40
    assert found.curves.spread == pytest.approx(1.2, abs=0.8)
    assert found.curves.fall * found.curves.spread == pytest.approx(0.38, abs=0.02)
    assert math.isfinite(found.speed_rank)
    assert found.speed_pairs == 40
