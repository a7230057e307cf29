"""The median stopping rule.

A trial is stopped at step s when its best loss up to s is strictly worse than the median of the
mean losses up to s, (o_1 + … + o_s) / s, of the trials that are over. A step without a report
counts with the loss of the next report. Trials that ended before s have no such mean and are left
out, except diverged trials, whose last report was infinite: their mean is infinite at every step
after their last finite report. A trial is never compared with trials still running, so no decision
depends on their speed. When trials are made longer, those that paused at the old end count as over
up to there.

With several metrics a finished trial has a vector of means, one per metric, and a trial has a
vector of best losses. A trial is stopped when more than half of the vectors of means dominate its
best losses. So a trial that beats half of the others in some metric goes on.

Source: Golovin et al., Google Vizier: A Service for Black-Box Optimization (KDD 2017), §3.2.2.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from hposvc.errors import Problem
from hposvc.schedulers.resumable import Resumable
from hposvc.schedulers.rung_ranking import Losses
from hposvc.schedulers.scheduler import (
    Decision,
    Fact,
    Left,
    Paused,
    Plan,
    Report,
    Scheduler,
    judgement_problems,
)
from searchers import COUNT, STEPS, AtMost, Space

Array = NDArray[np.float64]
MAX_JUDGEMENTS = 100  # of a trial, if no interval is given


@dataclass(frozen=True)
class Median:
    """Stop trials that are worse than the median of the trials before them."""

    # Trials that must be over, and have reached a step, before it stops any.
    min_trials: Annotated[int, AtMost(COUNT)] = 5
    # Steps between judgements; None: 1, or more for long trials.
    interval: Annotated[int, AtMost(STEPS)] | None = None
    ends_steadily: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name, value in (("min_trials", self.min_trials), ("interval", self.interval)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; choose a whole number from 1 up")

    def problems(self, space: Space, plan: Plan) -> Iterable[Problem]:
        """Yield the options that do not fit the sweep; paths start at the top of the spec."""
        return [] if self.interval is None else judgement_problems(self.interval, plan)

    def scheduler(self, plan: Plan) -> Scheduler:
        """Return a scheduler judging every `interval` steps from `plan.first`, before the end."""
        length = plan.last - plan.first
        interval = self.interval or max(1, math.ceil(length / MAX_JUDGEMENTS))
        steps = tuple(range(plan.first, plan.last, interval))
        return _Medians(
            last=plan.last,
            steps=steps,
            min_trials=self.min_trials,
            means={
                step: _Means() if plan.metrics == 1 else _MeanVectors(plan.metrics)
                for step in steps
            },
        )


@dataclass
class _LossHistory:
    """The losses of a trial so far, in one metric."""

    best: float = math.inf
    total: float = 0.0  # sum of the losses up to `step`
    step: int = 0  # last reported step
    means: list[float] = field(default_factory=list)  # mean loss at each judged step so far

    def add(self, step: int, loss: float, steps: tuple[int, ...]) -> None:
        """Record a finite report; `steps` are the steps at which trials are judged."""
        index = len(self.means)
        while index < len(steps) and steps[index] <= step:
            judged = steps[index]  # steps after the last report count with this one's loss
            self.means.append((self.total + (judged - self.step) * loss) / judged)
            index += 1
        self.best = min(self.best, loss)
        self.total += (step - self.step) * loss
        self.step = step


@dataclass
class _Means:
    """The finite mean losses up to a step of the trials that are over, in one metric."""

    means: list[float] = field(default_factory=list)  # ascending

    def __len__(self) -> int:
        return len(self.means)

    def add(self, means: Losses) -> None:
        insort(self.means, means[0])

    def count_better(self, best: Losses) -> int:
        """Return how many means are below a trial's best loss."""
        return bisect_left(self.means, best[0])

    def median_beats(self, best: Losses, diverged: int) -> bool:
        """Return whether the median of these means and infinite ones is below a trial's best loss.

        Args:
            best: of a trial.
            diverged: the number of infinite means.
        """
        middle, odd = divmod(len(self.means) + diverged, 2)
        if middle >= len(self.means):
            return False  # the median is infinite
        if odd:
            return best[0] > self.means[middle]
        # The mean of the two in the middle.
        return best[0] > (self.means[middle - 1] + self.means[middle]) / 2


@dataclass
class _MeanVectors:
    """The finite mean losses up to a step of the trials that are over, in several metrics.

    Axes: N rows, one per trial (grown by doubling), K metrics.
    """

    metrics: int
    count: int = 0
    rows_NK: Array = field(init=False)  # the first `count` rows are in use

    def __post_init__(self) -> None:
        self.rows_NK = np.empty((64, self.metrics))

    def __len__(self) -> int:
        return self.count

    def add(self, means: Losses) -> None:
        if self.count == len(self.rows_NK):
            self.rows_NK = np.vstack([self.rows_NK, np.empty_like(self.rows_NK)])
        self.rows_NK[self.count] = means
        self.count += 1

    def count_better(self, best: Losses) -> int:
        """Return how many means dominate a trial's best losses."""
        rows_NK = self.rows_NK[: self.count]
        dominate_N = (rows_NK <= best).all(axis=1) & (rows_NK < best).any(axis=1)
        return int(np.count_nonzero(dominate_N))

    def median_beats(self, best: Losses, diverged: int) -> bool:
        """Return whether more than half of the means dominate a trial's best losses.

        Args:
            best: of a trial.
            diverged: the number of infinite means, which dominate nothing.
        """
        return 2 * self.count_better(best) > self.count + diverged


@dataclass(kw_only=True)
class _Medians(Resumable):
    min_trials: int
    means: dict[int, _Means | _MeanVectors]  # of the trials that are over, by step
    # The histories of each trial that is not over, one per metric.
    histories: dict[str, list[_LossHistory]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)  # number of a trial's means in `means`
    diverged: set[str] = field(default_factory=set)  # trials that are about to be over
    # Ascending: the last finite step (0: none) of each diverged trial that is over.
    diverged_after: list[int] = field(default_factory=list)

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report():
                self._add(fact)
            case Paused() | Left() if fact.trial in self.histories:
                # Other trials are compared with the means of this one from now on.
                curves = self.histories[fact.trial]
                rows = list(zip(*(curve.means for curve in curves), strict=True))
                counted = self.counted.get(fact.trial, 0)
                for step, means in list(zip(self.steps, rows, strict=False))[counted:]:
                    self.means[step].add(means)
                self.counted[fact.trial] = len(rows)
        if isinstance(fact, Left):
            histories = self.histories.pop(fact.trial, ())
            if histories and fact.trial in self.diverged:
                insort(self.diverged_after, histories[0].step)

    def _add(self, report: Report) -> None:
        histories = self.histories.setdefault(report.trial, [_LossHistory() for _ in report.vector])
        if any(math.isinf(loss) for loss in report.vector):
            self.diverged.add(report.trial)
            return
        for history, loss in zip(histories, report.vector, strict=True):
            history.add(report.step, loss, self.steps)

    def judge(self, report: Report) -> Decision:
        if report.step not in self.means:  # a milestone from when trials were shorter
            return Decision("continue", "median", f"trials are not compared at step {report.step}")
        best = tuple(history.best for history in self.histories[report.trial])
        means, diverged = self.means[report.step], bisect_left(self.diverged_after, report.step)
        reached = len(means) + diverged
        worse = reached >= self.min_trials and means.median_beats(best, diverged)
        how = "are below" if len(best) == 1 else "dominate"
        below = f"{means.count_better(best)} of {reached} means up to step {report.step}"
        detail = f"{below} {how} its best"
        return Decision("stop" if worse else "continue", "median", detail)
