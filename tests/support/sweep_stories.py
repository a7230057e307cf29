"""A sweep in progress, built event by event."""

from collections.abc import Sequence
from dataclasses import dataclass

from hposvc import spec as specs
from hposvc.events import (
    Attached,
    Cause,
    Closed,
    Decided,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
)
from hposvc.state.sweep import SweepState
from trainables.order import Order

SPEC = {
    "name": "digits",
    "engine": {"type": "simulate", "curve": "a_module:curve"},
    "metric": {"name": "val/accuracy", "goal": "maximize"},
    "fidelity": {"unit": "epoch", "max": 27},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}, "batch": {"values": [32, 64]}},
    "trials": {"max": 5},
    "budget": {"wall": "2h"},
}


@dataclass
class Story:
    """A sweep's state with methods that apply further events; each event takes a second."""

    state: SweepState
    time: float = 1000.0

    def happen(self, *events: Event) -> Sequence[Event]:
        for event in events:
            self.state.apply(event)
        return events

    def tick(self) -> float:
        self.time += 1.0
        return self.time

    def begin(self, trial: str, order: int, lr: float = 0.001) -> Sequence[Event]:
        params = {"lr": lr, "batch": 64}
        work = Order(order, trial, params, None, 1, 27)
        proposed = Proposed(self.tick(), trial, params, {}, 27)
        return self.happen(proposed, Ordered(self.time, work))

    def order(self, trial: str, order: int) -> Sequence[Event]:
        """Give a trial another order."""
        params = self.state.trials[trial].params
        return self.happen(Ordered(self.tick(), Order(order, trial, params, None, 1, 27)))

    def report(self, trial: str, order: int, step: int, value: float) -> Sequence[Event]:
        return self.happen(Reported(self.tick(), order, trial, step, {"val/accuracy": value}))

    def stop(self, trial: str, order: int, step: int, reason: str) -> Sequence[Event]:
        decided = Decided(self.tick(), trial, order, step, "stop", reason)
        return self.happen(decided, Ended(self.time, order, trial))

    def fail(self, trial: str, order: int, message: str, cause: Cause = "user") -> Sequence[Event]:
        return self.happen(Failed(self.tick(), order, trial, cause, message))

    def finish(self) -> Sequence[Event]:
        closed = Closed(self.tick(), "trials")
        return self.happen(closed, Finished(self.time, "COMPLETED", "trials"))


def begun(**changes: object) -> Story:
    """Return a sweep to which a driver has just attached.

    Args:
        changes: sections of its spec.
    """
    story = Story(SweepState(specs.load({**SPEC, **changes})))
    story.happen(Attached(story.time, "host:1"))
    return story
