"""The median stopping rule.

A trial is stopped at step s when the best loss that it had up to there is strictly worse than the
median, over the trials that are over, of the mean loss up to s: (o_1 + … + o_s) / s. A step that
was not reported counts with the loss of the next report. Trials that are over but did not come as
far as s have no such mean and are left out, except those that diverged: theirs is infinite from
there on. A trial is never held against others that still run, so nothing depends on its speed.

With several metrics a trial is stopped when more than half of those means, each with a mean for
every metric, dominate the best losses that it had up to there, metric by metric. So one that does
better than half of the others somewhere goes on.

Source: Golovin et al., Google Vizier: A Service for Black-Box Optimization (KDD 2017), §3.2.2.
"""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hposvc.schedulers.continuing import Continuing
from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    Fact,
    Left,
    NewTrial,
    Opened,
    Over,
    Plan,
    Reopened,
    Report,
    Scheduler,
    Wait,
)
from hposvc.schedulers.standing import Losses

Array = NDArray[np.float64]
MOST_JUDGEMENTS = 100  # of a trial, where no interval is given


@dataclass(frozen=True)
class Median:
    """Stop trials that are worse than half of those before them."""

    min_trials: int = 5  # that must be over, and have come as far, before one is stopped there
    interval: int | None = None  # steps between judgements; None: 1, or more for long trials
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name, value in (("min_trials", self.min_trials), ("interval", self.interval)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; choose a whole number from 1 up")

    def scheduler(self, plan: Plan) -> Scheduler:
        """Judges at `plan.first` and every `interval` steps from there, but not at the end."""
        length = plan.last - plan.first
        interval = self.interval or max(1, math.ceil(length / MOST_JUDGEMENTS))
        steps = tuple(range(plan.first, plan.last, interval))
        return _Medians(
            last=plan.last,
            steps=steps,
            min_trials=self.min_trials,
            interval=interval,
            means={step: _means(plan.metrics) for step in steps},
        )


@dataclass
class _Course:
    """How a trial that is not over has done so far, in one metric."""

    best: float = math.inf
    total: float = 0.0  # of the losses up to `step`
    step: int = 0  # the last one reported
    means: list[float] = field(default_factory=list)  # at the steps judged so far

    def hear(self, step: int, loss: float, steps: tuple[int, ...]) -> None:
        """Take a report in; `steps` are those at which trials are judged."""
        place = len(self.means)
        while place < len(steps) and steps[place] <= step:
            self.means.append(self._mean_at(steps[place], loss))
            place += 1
        self.best = min(self.best, loss)
        self.total += (step - self.step) * loss
        self.step = step

    def _mean_at(self, step: int, loss: float) -> float:
        """The mean loss up to a step between the last report and the next, which is `loss`."""
        return (self.total + (step - self.step) * loss) / step


@dataclass
class _Line:
    """The means of trials that are over, up to a step."""

    means: list[float] = field(default_factory=list)  # ascending

    def __len__(self) -> int:
        return len(self.means)

    def add(self, means: Losses) -> None:
        insort(self.means, means[0])

    def better(self, best: Losses) -> int:
        """How many are below a trial's best."""
        return bisect_left(self.means, best[0])

    def exclude(self, best: Losses) -> bool:
        """Whether their median is below a trial's best."""
        middle = len(self.means) // 2
        if len(self.means) % 2:
            return best[0] > self.means[middle]
        # The mean of the two in the middle.
        return best[0] > (self.means[middle - 1] + self.means[middle]) / 2


@dataclass
class _Cloud:
    """The same by several metrics."""

    metrics: int
    count: int = 0
    rows_NK: Array = field(init=False)  # the first `count` are in use

    def __post_init__(self) -> None:
        self.rows_NK = np.empty((64, self.metrics))

    def __len__(self) -> int:
        return self.count

    def add(self, means: Losses) -> None:
        if self.count == len(self.rows_NK):
            self.rows_NK = np.vstack([self.rows_NK, np.empty_like(self.rows_NK)])
        self.rows_NK[self.count] = means
        self.count += 1

    def better(self, best: Losses) -> int:
        """How many dominate a trial's best."""
        rows_NK = self.rows_NK[: self.count]
        dominate_N = (rows_NK <= best).all(axis=1) & (rows_NK < best).any(axis=1)
        return int(np.count_nonzero(dominate_N))

    def exclude(self, best: Losses) -> bool:
        """Whether more than half of them dominate it."""
        return 2 * self.better(best) > self.count


def _means(metrics: int) -> _Line | _Cloud:
    """No means yet, of trials that so many metrics judge."""
    return _Line() if metrics == 1 else _Cloud(metrics)


@dataclass(kw_only=True)
class _Medians(Continuing):
    min_trials: int
    interval: int  # between two of `steps`
    means: dict[int, _Line | _Cloud]  # of trials over, by step
    courses: dict[str, list[_Course]] = field(default_factory=dict)  # of the others, by metric
    over: dict[str, list[_Course]] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)  # means of a trial that count already

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report():
                courses = self.courses.setdefault(fact.trial, [_Course() for _ in fact.vector])
                for course, loss in zip(courses, fact.vector, strict=True):
                    course.hear(fact.step, loss, self.steps)
            case Left() if fact.trial in self.courses:
                self.over[fact.trial] = self.courses.pop(fact.trial)
                self._settle(fact.trial, self.over[fact.trial])
            case Reopened() if fact.trial in self.over:
                self.courses[fact.trial] = self.over.pop(fact.trial)
            case Opened(plan=plan):
                self.steps = tuple(range(plan.first, plan.last, self.interval))
                new = (step for step in self.steps if step not in self.means)
                self.means |= {step: _means(plan.metrics) for step in new}

    def _settle(self, trial: str, courses: list[_Course]) -> None:
        """Hold the others against a trial that is over."""
        rows = list(zip(*(course.means for course in courses), strict=True))
        known = self.settled.get(trial, 0)
        for step, means in list(zip(self.steps, rows, strict=False))[known:]:
            self.means[step].add(means)
        self.settled[trial] = len(rows)
        if any(math.isinf(course.total) for course in courses):
            for step in self.steps[max(known, len(rows)) :]:
                self.means[step].add((math.inf,) * len(courses))
            self.settled[trial] = len(self.steps)

    def next(self) -> NewTrial | Advance | Wait | Over:
        new = self.rest() if self.closed else NewTrial(self.last, self.steps)
        return self.carry_on() or new

    def judge(self, report: Report) -> Decision:
        best = tuple(course.best for course in self.courses[report.trial])
        means = self.means[report.step]
        worse = len(means) >= self.min_trials and means.exclude(best)
        how = "are below" if len(best) == 1 else "dominate"
        below = f"{means.better(best)} of {len(means)} means up to step {report.step}"
        detail = f"{below} {how} its best"
        return Decision("stop" if worse else "continue", "median", detail)
