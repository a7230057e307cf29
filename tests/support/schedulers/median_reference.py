"""A reference of the paper's median stopping rule that rescans all facts for every answer."""

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
    Plan,
    Report,
    SearchDone,
    Wait,
)


@dataclass
class Rescan:
    """The median stopping rule; every answer looks at all facts so far."""

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
        return Wait() if began - left else SearchDone()

    def _curve(self, trial):
        return [(f.step, f.loss) for f in self.facts if isinstance(f, Report) and f.trial == trial]

    def _mean(self, trial, step):
        """Return (o_1 + … + o_s) / s; None: the trial had no o_s when it was last over."""
        facts = [fact for fact in self.facts if getattr(fact, "trial", None) == trial]
        left = max(place for place, fact in enumerate(facts) if isinstance(fact, Left))
        reports = [fact for fact in facts[:left] if isinstance(fact, Report)]
        curve = [(report.step, report.loss) for report in reports if report.loss < math.inf]
        if curve and curve[-1][0] >= step:
            losses = [next(loss for at, loss in curve if at >= i) for i in range(1, step + 1)]
            return sum(losses) / step
        diverged = reports and reports[-1].loss == math.inf
        return math.inf if diverged else None


@dataclass
class Counted(Both):
    """Both schedulers, asked only at the reference's steps, with a count of the stops."""

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
