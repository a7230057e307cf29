"""The median stopping rule.

A trial is stopped at step s when the best loss that it had up to there is strictly worse than the
median, over the trials that are over, of the mean loss up to s: (o_1 + … + o_s) / s. A step that
was not reported counts with the loss of the next report. Trials that are over but did not come as
far as s have no such mean and are left out, except those that diverged: theirs is infinite from
there on. A trial is never held against others that still run, so nothing depends on its speed.

Source: Golovin et al., Google Vizier: A Service for Black-Box Optimization (KDD 2017), §3.2.2.
"""

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import ClassVar

from hposvc.schedulers.scheduler import (
    Decision,
    Fact,
    Left,
    NewTrial,
    Over,
    Plan,
    Report,
    Running,
    Scheduler,
    Wait,
)

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
        return _Medians(self.min_trials, plan.last, tuple(range(plan.first, plan.last, interval)))


@dataclass
class _Course:
    """How a trial that is not over has done so far."""

    best: float = math.inf
    total: float = 0.0  # of the losses up to `step`
    step: int = 0  # the last one reported
    means: list[float] = field(default_factory=list)  # at the steps judged so far

    def extend(self, report: Report) -> None:
        """Take a report in."""
        self.best = min(self.best, report.loss)
        self.total += (report.step - self.step) * report.loss
        self.step = report.step

    def mean_at(self, step: int, loss: float) -> float:
        """The mean loss up to a step between the last report and the next, which is `loss`."""
        return (self.total + (step - self.step) * loss) / step


@dataclass
class _Medians(Running):
    min_trials: int
    last: int
    steps: tuple[int, ...]  # at which trials are judged
    means: dict[int, list[float]] = field(default_factory=dict)  # of trials over, ascending
    courses: dict[str, _Course] = field(default_factory=dict)  # of the others

    def __post_init__(self) -> None:
        self.means = {step: [] for step in self.steps}

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        if isinstance(fact, Report):
            self._hear(fact)
        elif isinstance(fact, Left):
            self._settle(self.courses.pop(fact.trial, _Course()))

    def _hear(self, report: Report) -> None:
        course = self.courses.setdefault(report.trial, _Course())
        place = len(course.means)
        while place < len(self.steps) and self.steps[place] <= report.step:
            course.means.append(course.mean_at(self.steps[place], report.loss))
            place += 1
        course.extend(report)

    def _settle(self, course: _Course) -> None:
        """Hold the others against a trial that is over."""
        for step, mean in zip(self.steps, course.means, strict=False):
            insort(self.means[step], mean)
        if math.isinf(course.total):
            for step in self.steps[len(course.means) :]:
                self.means[step].append(math.inf)

    def next(self) -> NewTrial | Wait | Over:
        return self.rest() if self.closed else NewTrial(self.last, self.steps)

    def judge(self, report: Report) -> Decision:
        best = self.courses[report.trial].best
        means = self.means[report.step]
        worse = len(means) >= self.min_trials and best > _median(means)
        better = bisect_left(means, best)
        detail = f"{better} of {len(means)} means up to step {report.step} are below its best"
        return Decision("stop" if worse else "continue", "median", detail)


def _median(ascending: list[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    middle = len(ascending) // 2
    if len(ascending) % 2:
        return ascending[middle]
    return (ascending[middle - 1] + ascending[middle]) / 2
