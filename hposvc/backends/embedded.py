"""The embedded backend: a function of the caller evaluates trials, on the driver's own thread.

It is for callers whose trials need objects that live in their process, such as the data of an
estimator's `fit`. Each trial is one call, with one report or several.
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from hposvc.backends.backend import Answer, Backend, Setting
from hposvc.errors import fail
from hposvc.events import BackendEvent, Ended, Failed, Placed, Reported
from trainables.contract import Order, shortened, text_of
from trainables.monitoring import device

# The metrics of a trial's only report, or of each; a text: why it has none.
Outcome = Mapping[str, float] | Sequence[Mapping[str, float]] | str
Evaluate = Callable[[Sequence[Order]], Sequence[Outcome]]


class Embedded(Backend):
    """A backend whose slots are the places of a batch that is evaluated in one call.

    Args:
        evaluate: evaluates some trials; if it raises, the sweep ends as FAILED.
        slots: how many trials are evaluated together.
    """

    def __init__(self, setting: Setting, evaluate: Evaluate, slots: int) -> None:
        self.setting = setting
        if setting.spec.needs_energy:
            raise fail("energy_kwh is not measured where trials are calls of the caller's function")
        self._evaluate = evaluate
        self._slots = self._limit = slots
        self._waiting: dict[int, Order] = {}  # orders by number, to be evaluated
        self._ended: list[Order] = []  # stopped before they were evaluated
        self._idle = False
        self._device = device.model(gpu=False)

    def capacity(self) -> int:
        return max(0, self._limit - len(self._waiting))

    def slots(self) -> int:
        return self._slots

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self._waiting[order.id] = order

    def decide(self, order: int, verdict: Answer) -> None:
        if verdict != "continue" and order in self._waiting:
            self._ended.append(self._waiting.pop(order))

    def kill(self, order: int) -> None:
        self.decide(order, "stop")

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        pass  # the caller knows how much it can do at once

    def set_slot_limit(self, slots: int) -> int:
        self._limit = min(slots, self._slots)
        return 1

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        ended, self._ended = self._ended, []
        orders, self._waiting = list(self._waiting.values()), {}
        if not orders and not ended and self._idle:
            time.sleep(timeout_s)  # only requests to the sweep can arrive meanwhile
        self._idle = not orders
        events: list[BackendEvent] = [Ended(self.now(), order.id, order.trial) for order in ended]
        if orders:
            begun, node = self.now(), platform.node()
            events += [Placed(begun, order.id, order.trial, self._device, node) for order in orders]
            try:
                outcomes = self._evaluate(orders)
            except Exception as error:  # noqa: BLE001 - whatever the caller's code raises
                text = f"{type(error).__name__}: {text_of(error)}"
                return [*events, *(self._failed(order, text, True) for order in orders)]
            for order, outcome in zip(orders, outcomes, strict=True):
                events += self._events_of(order, outcome)
        return events

    def close(self) -> None:
        self._waiting.clear()

    def _events_of(self, order: Order, outcome: Outcome) -> list[BackendEvent]:
        if isinstance(outcome, str):
            return [self._failed(order, outcome)]
        now = self.now()
        reports = [outcome] if isinstance(outcome, Mapping) else outcome
        return [
            *(
                Reported(now, order.id, order.trial, step, metrics)
                for step, metrics in enumerate(reports, start=order.first)
            ),
            Ended(now, order.id, order.trial),
        ]

    def _failed(self, order: Order, message: str, every_trial_fails: bool = False) -> Failed:
        return Failed(
            self.now(), order.id, order.trial, "user", shortened(message), whole=every_trial_fails
        )
