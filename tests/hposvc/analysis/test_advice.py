"""What to try next while there is no best trial."""

import pytest
from simulated_sweeps import at_desk, fold, make_spec

from hposvc.analysis.verdict import verdict
from hposvc.events import Attached, Ended, Finished, Ordered, Proposed, Reported
from trainables.order import Order


def advice(desk):
    (found,) = [each for each in verdict("s", desk.state, ()).findings if each.topic == "next"]
    return found.sentence


def test_without_a_value_it_says_to_wait():
    desk = at_desk(scheduler="fifo")
    desk.start()
    assert advice(desk) == "Wait for the first value."
    desk.happen(Finished(1.0, "STOPPED", "user"))
    assert "No trial reported a value" in advice(desk)


def test_values_beyond_the_limits_are_told_from_failures():
    desk = at_desk(scheduler="fifo", limits=["loss <= 0.5"])
    order = desk.start()
    desk.report(order, 1, 0.9)
    assert "No trial is within the limits" in advice(desk)


@pytest.mark.parametrize(
    ("changes", "cost"),
    [
        ({}, "for about 20 worker-hours"),
        ({"price": {"worker_hour": 2.0, "currency": "EUR"}}, "worker-hours, or 40.00 EUR"),
        ({"resources": {"gpus_per_worker": 2}}, "for about 40 GPU-hours"),
    ],
)
def test_the_worth_of_more_trials_has_the_metric_and_what_they_cost(changes, cost):
    spec = make_spec(scheduler="fifo", **changes)
    events = [Attached(0.0, "here:1")]
    for number in range(1, 13):
        name, begun = f"t{number:04d}", 3600.0 * number
        params = {"lr": 10 ** (-4 + number / 6)}
        events += [
            Proposed(begun, name, params, {}, 9, ()),
            Ordered(begun, Order(number, name, params, None, 1, 9)),
            *(Reported(begun, number, name, step, {"loss": 1 / number}) for step in range(1, 10)),
            Ended(begun + 3600, number, name),
        ]
    state = fold(spec, [*events, Finished(50_000.0, "COMPLETED", "trials")])
    (found,) = [each for each in verdict("s", state, ()).findings if each.topic == "next"]
    assert "20 more trials are expected to gain about" in found.sentence
    assert " in loss (80 % sure: " in found.sentence
    assert cost in found.sentence
    assert found.data["more"]["rank_s"] == pytest.approx(20 * 3600.0)
