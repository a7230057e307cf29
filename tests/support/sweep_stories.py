"""Events of sweeps written by hand: of a trial, of a sweep, or of one that goes on (`Story`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

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

LR = MappingProxyType({"lr": 1e-3})


def trial_name(number: int) -> str:
    return f"t{number:04d}"


def begin(
    number: int,
    time: float = 0.0,
    params: Mapping[str, Any] = LR,
    until: int | None = 9,
    note: Mapping[str, Any] = MappingProxyType({}),
    trial: str = "",
) -> list[Event]:
    """Return the events with which a trial begins; its first order has the trial's number."""
    name, values = trial or trial_name(number), dict(params)
    order = Order(number, name, values, None, first=1, until=until)
    return [Proposed(time, name, values, dict(note), until), Ordered(time, order)]


def report(number: int, time: float, step: int, loss: float, **others: float) -> Reported:
    """Return a report of a trial's first order."""
    return Reported(time, number, trial_name(number), step, {"loss": loss, **others})


def trial(
    number: int,
    curve: Sequence[float] | Mapping[int, Mapping[str, float]],
    time: float = 0.0,
    step_s: float = 0.05,
    end: Event | None = None,
    metric: str = "loss",
    **begun: Any,
) -> list[Event]:
    """Return the events of a trial that reports a curve.

    Args:
        curve: a metric of each step from 1 on, or what is reported by step.
        step_s: from a report to the next; the first one is a step after the beginning.
        end: the last event; None: the trial ends by itself, half a step after its last report.
        begun: of `begin`.
    """
    if not isinstance(curve, Mapping):
        curve = {step: {metric: value} for step, value in enumerate(curve, 1)}
    name = trial_name(number)
    reports = [Reported(time + step * step_s, number, name, step, curve[step]) for step in curve]
    ended = end or Ended(time + (max(curve, default=0) + 0.5) * step_s, number, name)
    return [*begin(number, time, **begun), *reports, ended]


def whole(*trials: Sequence[Event]) -> list[Event]:
    """Return the events of a sweep that has completed these trials, one after another."""
    events = [Attached(0.0, "here:1"), *chain.from_iterable(trials)]
    return [*events, Finished(events[-1].time + 1.0, "COMPLETED", "trials")]


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
        return self.happen(*begin(order, self.tick(), {"lr": lr, "batch": 64}, 27, trial=trial))

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
