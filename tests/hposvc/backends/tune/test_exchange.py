"""The exchange between the driver's thread and Tune's."""

import pytest
from ray.tune.experiment import Trial

from hposvc.backends.tune.exchange import OrderExchange
from hposvc.backends.tune.trainable import TASK, Task
from trainables.order import Order
from trainables.runtime.assignment import Assignment
from trainables.runtime.wire import Call

pytestmark = [pytest.mark.ray, pytest.mark.long]


def given(number, process=None):
    """Return a Tune trial for the order of this number."""
    task = Assignment(Order(number, "t", {}, None, 1, 3))
    trial = Trial("order", config={TASK: Task(Call(("", 0), b"", ""), task)}, stub=True)
    trial.temporary_state.ray_actor = process
    return trial


def test_an_idle_process_goes_to_the_last_trial_that_has_none():
    exchange = OrderExchange(3)
    trials = [given(1, "process"), given(2), given(3)]
    for trial in trials:
        exchange.put(trial.config[TASK].assignment)
        exchange.next_order()
        exchange.register(trial)
    exchange.step()
    assert exchange.waiting_trial() is None, "no slot is idle"
    exchange.mark_idle(trials[0])
    assert exchange.waiting_trial() is trials[2], "Tune places them in their order"
    exchange.put(given(4).config[TASK].assignment)
    assert (exchange.waiting_trial(), exchange.pop_idle()) == (None, None), (
        "the slot is the next order's"
    )
    exchange.next_order()
    assert exchange.waiting_trial() is None, "one process changes hands in a step"
    assert exchange.register(given(4, "process")) is trials[0]


def test_a_broken_process_is_given_to_no_trial_that_waits():
    exchange = OrderExchange(2)
    first, second = given(1, "process"), given(2)
    for trial in (first, second):
        exchange.put(trial.config[TASK].assignment)
        exchange.next_order()
        exchange.register(trial)
    exchange.step()
    exchange.mark_idle(first)
    exchange.mark_broken(1)
    assert (exchange.waiting_trial(), exchange.pop_idle()) == (None, None)
    assert exchange.step() == [first], "it leaves"
