"""Asynchronous successive halving, by stopping or by promotion.

Rungs lie at first, first*eta, first*eta^2, … and the end. Of the trials that reached a rung the
best 1/eta go on. `promote` is Algorithm 2 of the paper: a trial pauses at each rung and goes on
when it is among the best floor(n/eta) of the n that are there. `stop` decides once, on arrival:
a trial goes on when it is among the best ceil(n/eta) of those that arrived so far, itself
included, so the first to arrive always does. A diverged trial is the worst of its rung.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), §3.2 and
§3.3; the stopping variant is the one of Klein et al., Model-based Asynchronous Hyperparameter
and Neural Architecture Search (2020), §3.
"""

import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    Fact,
    Left,
    NewTrial,
    Ordered,
    Over,
    Paused,
    Plan,
    Report,
    Running,
    Scheduler,
    Wait,
    rungs,
)


@dataclass(frozen=True)
class Asha:
    """Successive halving that never waits for a rung to fill."""

    eta: int = 3
    mode: Literal["stop", "promote"] = "stop"
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.eta < 2:
            raise ValueError(
                f"eta is {self.eta}; choose a whole number from 2 up (the paper has 4)"
            )

    def scheduler(self, plan: Plan) -> Scheduler:
        steps = rungs(plan.first, plan.last, self.eta)
        if self.mode == "stop":
            return _Stopping(self.eta, steps)
        return _Promoting(self.eta, steps)


@dataclass
class _Stopping(Running):
    eta: int
    steps: tuple[int, ...]
    losses: dict[int, list[float]] = field(default_factory=dict)  # by rung, ascending

    def __post_init__(self) -> None:
        self.losses = {step: [] for step in self.steps[:-1]}

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        if isinstance(fact, Report) and fact.step in self.losses:
            insort(self.losses[fact.step], fact.loss)

    def next(self) -> NewTrial | Wait | Over:
        return self.rest() if self.closed else NewTrial(self.steps[-1], self.steps[:-1])

    def judge(self, report: Report) -> Decision:
        rung = self.losses[report.step]
        better = bisect_left(rung, report.loss)
        survivors = math.ceil(len(rung) / self.eta)
        place = f"place {better + 1} of {len(rung)} at step {report.step}, {survivors} go on"
        goes_on = better < survivors and not math.isinf(report.loss)
        return Decision("continue" if goes_on else "stop", "rung", place)


@dataclass
class _Rung:
    """The trials that reached a rung, and those of them that wait to be promoted."""

    arrived: list[tuple[float, str]] = field(default_factory=list)  # ascending by loss
    waiting: list[tuple[float, str]] = field(default_factory=list)  # a heap; may hold the gone
    gone: set[str] = field(default_factory=set)  # promoted, or over

    def promotable(self, eta: int) -> str | None:
        """The best trial that waits, if it is among the best floor(n/eta) of the rung."""
        while self.waiting and self.waiting[0][1] in self.gone:
            heapq.heappop(self.waiting)
        if not self.waiting or math.isinf(self.waiting[0][0]):
            return None
        better = bisect_left(self.arrived, self.waiting[0])
        return self.waiting[0][1] if better < len(self.arrived) // eta else None


@dataclass
class _Promoting(Running):
    eta: int
    steps: tuple[int, ...]
    rungs: dict[int, _Rung] = field(default_factory=dict)
    at: dict[str, tuple[int, float]] = field(
        default_factory=dict
    )  # last rung and loss, of the live

    def __post_init__(self) -> None:
        self.rungs = {step: _Rung() for step in self.steps[:-1]}

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        if isinstance(fact, Report) and fact.step in self.rungs:
            insort(self.rungs[fact.step].arrived, (fact.loss, fact.trial))
            self.at[fact.trial] = (fact.step, fact.loss)
        elif isinstance(fact, Paused) and fact.trial in self.at:
            step, loss = self.at[fact.trial]
            heapq.heappush(self.rungs[step].waiting, (loss, fact.trial))
        elif isinstance(fact, Ordered):
            self._leave_rung(fact.trial, below=fact.until)
        elif isinstance(fact, Left):
            self._leave_rung(fact.trial, below=self.steps[-1] + 1)

    def _leave_rung(self, trial: str, below: int) -> None:
        if trial in self.at and self.at[trial][0] < below:
            step, _ = self.at.pop(trial)
            self.rungs[step].gone.add(trial)

    def next(self) -> NewTrial | Advance | Wait | Over:
        for step, after in reversed(list(zip(self.steps[:-1], self.steps[1:], strict=True))):
            trial = self.rungs[step].promotable(self.eta)
            if trial is not None:
                return Advance(trial, after)
        return self.rest() if self.closed else NewTrial(self.steps[0])

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "rung", f"runs to its rung, {report.step}")
