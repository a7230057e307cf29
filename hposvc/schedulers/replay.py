"""A fixed schedule: a single trial whose values change at given steps, from its own checkpoints.

`parameters` are the values up to the first change. `hposvc export ID --schedule` writes such a
spec, so that a schedule found by a population can be trained again, alone.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, ClassVar

from numpy.random import Generator

from hposvc.errors import Problem, shown
from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    Fact,
    Left,
    NewTrial,
    Ordered,
    Paused,
    Plan,
    Report,
    Running,
    Scheduler,
    SearchDone,
    TrialStop,
    Wait,
)
from searchers import (
    STEPS,
    AtMost,
    Params,
    Space,
    Value,
    has_lists,
    is_structured,
    is_value,
    nearest,
)


@dataclass(frozen=True)
class Shift:
    """New values, in force from the step after `after` on; values not named stay."""

    after: int
    values: dict[str, object] = field(default_factory=dict)
    seed_of: str | None = None  # the trial whose random numbers are drawn there; None: its own
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True)
class Replay:
    """Train one trial by a schedule."""

    schedule: tuple[Shift, ...] = ()  # ascending
    seed_of: str | None = None  # like a shift's, for the steps before the first shift
    # The step after which it ends; None: the end of a trial.
    until: Annotated[int, AtMost(STEPS)] | None = None
    fixed_length: ClassVar[bool] = True
    changes_values: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def scheduler(self, plan: Plan) -> Scheduler:
        """Return a scheduler of a single trial."""
        return _SingleTrial(self.schedule, self.until, plan.last)

    def seeded_as(self, step: int) -> str | None:
        """Return the trial whose random numbers the steps from `step` on draw; None: its own."""
        before = bisect_left([shift.after for shift in self.schedule], step)
        return self.schedule[before - 1].seed_of if before else self.seed_of

    def problems(self, space: Space, plan: Plan) -> Iterator[Problem]:
        """Yield the options that do not fit the sweep; paths start at the top of the spec."""
        if plan.trials != 1:
            value = "is missing" if plan.trials is None else f"is {plan.trials}"
            message = f"{value}, but scheduler replay trains a single trial"
            yield Problem(("trials", "max"), message, "set it to 1", at_key=plan.trials is None)
        if self.until is not None and not 1 <= self.until <= plan.last:
            fix = f"give a step from 1 to {plan.last}, the end"
            yield Problem(("scheduler", "until"), f"is {self.until}", fix)
        steps = [0, *(shift.after for shift in self.schedule)]
        for index, (before, after) in enumerate(pairwise(steps)):
            if not before < after < plan.last:
                fix = f"give a step after {before} and below {plan.last}, the end"
                yield Problem(("scheduler", "schedule", index, "after"), f"is {after}", fix)
        for index, shift in enumerate(self.schedule):
            for name, new in shift.values.items():
                path = ("scheduler", "schedule", index, "values", name)
                if name not in space:
                    yield Problem(path, "no such parameter", nearest(name, space), at_key=True)
                elif not is_value(new) or (is_structured(new) and not has_lists(space[name])):
                    yield Problem(path, f"is {shown(new)}", "give one value")


@dataclass(frozen=True)
class Changed:
    """Go on from the trial's own checkpoint, with other values."""

    shift: Shift

    @property
    def donor(self) -> None:
        """Always None: the trial goes on from its own checkpoint."""

    def values(self, space: Space, params: Params, rng: Generator) -> Params:
        """Return the trial's values, updated with those of the schedule."""
        new: dict[str, Value] = {**params, **self.shift.values}  # type: ignore[dict-item]
        return new


@dataclass
class _SingleTrial(Running):
    schedule: tuple[Shift, ...]
    until: int | None
    last: int
    begun: bool = False
    step: int = 0  # last reported step
    paused: str | None = None  # the trial, while paused

    copies = True  # the trial must have a checkpoint of the very step at which its values change

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

    @property
    def end(self) -> int:
        """The step at which the trial's last order ends, even if trials are longer."""
        return self.last if self.until is None else min(self.until, self.last)

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        steps = [shift.after for shift in self.schedule if shift.after < self.end]
        if not self.begun and not self.closed:
            return NewTrial(self.end, tuple(steps))
        if self.paused is None or self.step >= self.end:
            return self.idle_move()
        begun = bisect_right(steps, self.step)
        change = Changed(self.schedule[begun - 1]) if begun else None
        return Advance(self.paused, self.end, tuple(steps[begun:]), change)

    def trials_to_stop(self) -> Sequence[TrialStop]:
        if self.paused is None or self.step < self.end:
            return ()
        return [TrialStop(self.paused, "until", f"its schedule ends after step {self.end}")]

    def judge(self, report: Report) -> Decision:
        return Decision("pause", "schedule", f"its values change after step {report.step}")

    def max_concurrency(self) -> int:
        """Return 1 while the trial runs or is paused, otherwise 0."""
        return len(self.running) + (self.paused is not None)
