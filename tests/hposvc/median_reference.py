"""The median stopping rule as the paper has it, rescanning everything at every question."""

import math
from dataclasses import dataclass, field
from statistics import median

from both import Both

from hposvc.schedulers.median import Median
from hposvc.schedulers.scheduler import (
    Closed,
    Decision,
    Left,
    NewTrial,
    Ordered,
    Over,
    Plan,
    Report,
    Wait,
)


@dataclass
class Rescan:
    """Every answer looks at all that was ever told."""

    min_trials: int
    last: int
    steps: tuple[int, ...]
    facts: list = field(default_factory=list)

    def apply(self, fact):
        self.facts.append(fact)

    def judge(self, report):
        over = {fact.trial for fact in self.facts if isinstance(fact, Left)}
        means = [self._mean(trial, report.step) for trial in over]
        means = [mean for mean in means if mean is not None]
        if len(means) < self.min_trials:
            return "continue"
        best = min(loss for step, loss in self._curve(report.trial) if step <= report.step)
        return "stop" if best > median(means) else "continue"

    def next(self):
        if not any(isinstance(fact, Closed) for fact in self.facts):
            return NewTrial(self.last, self.steps)
        left = {fact.trial for fact in self.facts if isinstance(fact, Left)}
        began = {fact.trial for fact in self.facts if isinstance(fact, Ordered)}
        return Wait() if began - left else Over()

    def _curve(self, trial):
        return [(f.step, f.loss) for f in self.facts if isinstance(f, Report) and f.trial == trial]

    def _mean(self, trial, step):
        """(o_1 + … + o_s) / s; None where the trial has no o_s."""
        curve = self._curve(trial)
        if any(loss == math.inf and at <= step for at, loss in curve):
            return math.inf
        if not curve or curve[-1][0] < step:
            return None
        return sum(next(loss for at, loss in curve if at >= i) for i in range(1, step + 1)) / step


@dataclass
class Counted(Both):
    """Counts the stops; it is asked at the reference's steps only."""

    stopped: int = 0

    def judge(self, report) -> Decision:
        if report.step not in self.reference.steps:
            return Decision("continue", "between two milestones")
        decision = super().judge(report)
        self.stopped += decision.verdict == "stop"
        return decision


def both(min_trials, interval, first, last):
    real = Median(min_trials, interval).scheduler(Plan(first, last))
    return Counted(real, Rescan(min_trials, last, tuple(range(first, last, interval))))
