"""A fixed schedule: one trial whose values change at given steps, from its own checkpoints.

`parameters` are the values up to the first change. `hposvc export ID --schedule` writes such a
spec, so that what a population found can be trained again, alone.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from numpy.random import Generator

from hposvc.reading.problems import Problem, no_such, shown
from hposvc.schedulers.scheduler import (
    Advance,
    Cut,
    Decision,
    Fact,
    Left,
    NewTrial,
    Opened,
    Ordered,
    Over,
    Paused,
    Plan,
    Reopened,
    Report,
    Running,
    Scheduler,
    Wait,
)
from searchers.space import Space
from searchers.values import Params, Value, is_value


@dataclass(frozen=True)
class Shift:
    """New values, in force from the step after `after` on; those not named stay."""

    after: int
    values: dict[str, object] = field(default_factory=dict)
    seed_of: str | None = None  # the trial whose random numbers are drawn there; None: its own
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True)
class Replay:
    """Train one trial by a schedule."""

    schedule: tuple[Shift, ...] = ()  # ascending
    seed_of: str | None = None  # as a shift's, up to the first one
    until: int | None = None  # the step after which it ends; None: the end of a trial
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, plan: Plan) -> Scheduler:
        """One trial."""
        return _Course(self.schedule, self.until, plan.last)

    def seeded_as(self, step: int) -> str | None:
        """Whose random numbers the steps from `step` on draw; None: the trial's own."""
        before = bisect_left([shift.after for shift in self.schedule], step)
        return self.schedule[before - 1].seed_of if before else self.seed_of

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """What of it does not fit the sweep; paths are from the spec's top."""
        if plan.trials != 1:
            found = "is missing" if plan.trials is None else f"is {plan.trials}"
            message = f"{found}, but scheduler replay trains a single trial; set it to 1"
            yield Problem(("trials", "max"), message, at_key=plan.trials is None)
        if self.until is not None and not 1 <= self.until <= plan.last:
            message = f"is {self.until}; give a step from 1 to {plan.last}, the end"
            yield Problem(("scheduler", "until"), message)
        steps = [0, *(shift.after for shift in self.schedule)]
        for place, (before, after) in enumerate(pairwise(steps)):
            if not before < after < plan.last:
                message = f"is {after}; give a step after {before} and below {plan.last}, the end"
                yield Problem(("scheduler", "schedule", place, "after"), message)
        for place, shift in enumerate(self.schedule):
            for name, value in shift.values.items():
                path = ("scheduler", "schedule", place, "values", name)
                if name not in space:
                    yield Problem(path, no_such("parameter", name, space), at_key=True)
                elif not is_value(value):
                    yield Problem(path, f"is {shown(value)}; give one value")


@dataclass(frozen=True)
class Changed:
    """Go on from its own checkpoint with other values."""

    shift: Shift

    @property
    def donor(self) -> None:
        """No other trial."""

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """The values, with those of the schedule in place."""
        new: dict[str, Value] = {**params, **self.shift.values}  # type: ignore[dict-item]
        return new


@dataclass
class _Course(Running):
    schedule: tuple[Shift, ...]
    until: int | None
    last: int
    begun: bool = False
    step: int = 0  # the last one reported
    paused: str | None = None

    copies = True  # it goes on from the checkpoint of the very step

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Ordered():
                self.begun, self.paused = True, None
            case Report():
                self.step = fact.step
            case Paused():
                self.paused = fact.trial
            case Left():
                self.paused = None
            case Opened(plan=plan):
                self.last = plan.last
            case Reopened(failed=False):
                self.paused = fact.trial

    @property
    def end(self) -> int:
        """Where its last order ends, however long a trial is."""
        return self.last if self.until is None else min(self.until, self.last)

    def next(self) -> NewTrial | Advance | Wait | Over:
        steps = [shift.after for shift in self.schedule if shift.after < self.end]
        if not self.begun and not self.closed:
            return NewTrial(self.end, tuple(steps))
        if self.paused is None or self.step >= self.end:
            return self.rest()
        begun = bisect_right(steps, self.step)
        change = Changed(self.schedule[begun - 1]) if begun else None
        return Advance(self.paused, self.end, tuple(steps[begun:]), change)

    def cut(self) -> Sequence[Cut]:
        if self.paused is None or self.step < self.end:
            return ()
        return [Cut(self.paused, "until", f"its schedule ends after step {self.end}")]

    def judge(self, report: Report) -> Decision:
        return Decision("pause", "schedule", f"its values change after step {report.step}")

    def width(self) -> int:
        """One, while there is a trial."""
        return len(self.running) + (self.paused is not None)
