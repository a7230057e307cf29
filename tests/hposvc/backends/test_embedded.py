"""The backend whose trials are calls of a function in the driver's own process."""

import pytest
from simulated_sweeps import make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.embedded import Embedded
from hposvc.events import Ended, Failed, Placed, Reported
from trainables.order import Order

SLOTS = 3


@pytest.fixture
def begun(tmp_path):
    """Return a function that makes a backend with three slots and starts this many orders."""

    def begin(evaluate, orders=SLOTS):
        backend = Embedded(Setting("s", make_spec(), tmp_path, tmp_path), evaluate, SLOTS)
        for number in range(1, orders + 1):
            backend.start(Order(number, f"t000{number}", {"lr": number}, None, 1, 9), {})
        return backend

    return begin


def told(events):
    """Return what happened to each order, without the times."""
    return [(type(event), event.order) for event in events]


def test_the_trials_of_all_slots_are_one_call(begun):
    calls = []

    def evaluate(orders):
        calls.append([order.id for order in orders])
        return [{"loss": order.params["lr"] / 2} for order in orders]

    backend = begun(evaluate)
    assert (backend.slots(), backend.capacity()) == (3, 0)
    events = backend.events(0.0)
    assert calls == [[1, 2, 3]]
    assert told(events[:3]) == [(Placed, 1), (Placed, 2), (Placed, 3)]
    reports = {event.order: event for event in events if isinstance(event, Reported)}
    assert {number: report.metrics for number, report in reports.items()} == {
        1: {"loss": 0.5},
        2: {"loss": 1.0},
        3: {"loss": 1.5},
    }
    assert [event.order for event in events if isinstance(event, Ended)] == [1, 2, 3]
    assert (backend.capacity(), told(backend.events(0.0))) == (3, [])


def test_a_trial_that_was_stopped_before_its_call_is_not_evaluated(begun):
    backend = begun(lambda orders: [{"loss": 1.0} for _ in orders])
    backend.decide(2, "stop")
    backend.decide(3, "continue")
    backend.kill(1)
    events = backend.events(0.0)
    ended = [event.order for event in events if isinstance(event, Ended)]
    assert ended == [2, 1, 3]
    assert [event.order for event in events if isinstance(event, Reported)] == [3]


def test_a_text_fails_one_trial_and_an_error_the_sweep(begun):
    events = begun(lambda orders: ["no fold", {"loss": 1.0}, {"loss": 2.0}]).events(0.0)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert (failed.order, failed.message, failed.whole) == (1, "no fold", False)

    def broken(orders):
        raise ZeroDivisionError("half")

    failures = [event for event in begun(broken).events(0.0) if isinstance(event, Failed)]
    assert [(failed.order, failed.whole) for failed in failures] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    assert failures[0].message == "ZeroDivisionError: half"
