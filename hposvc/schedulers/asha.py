"""Asynchronous successive halving, by stopping or by promotion.

Rungs lie at first, first*eta, first*eta^2, … and the end. Of the trials that reached a rung the
best 1/eta go on. `promote` is Algorithm 2 of the paper: a trial pauses at each rung and goes on
when it is among the best floor(n/eta) of the n that are there. `stop` decides once, on arrival:
a trial goes on when it is among the best ceil(n/eta) of those that arrived so far, itself
included, so the first to arrive always does. A diverged trial is the worst of its rung.

With several metrics a rung is ranked front by front (standing.py), and a trial that no other of its
rung dominates is never stopped: on arrival it goes on whatever the share, and one that was not
promoted is when there are no new trials any more.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), §3.2 and
§3.3; the stopping variant is the one of Klein et al., Model-based Asynchronous Hyperparameter
and Neural Architecture Search (2020), §3.
"""

import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hposvc.schedulers.continuing import Continuing
from hposvc.schedulers.scheduler import (
    Advance,
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
    rungs,
)
from hposvc.schedulers.standing import Fronts, Line, standing


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
        below, metrics = steps[:-1], plan.metrics
        if self.mode == "promote":
            return _Promoting(self.eta, steps, {step: _rung(metrics) for step in below}, metrics)
        return _Stopping(
            last=plan.last,
            steps=below,
            eta=self.eta,
            metrics=metrics,
            rungs={step: standing(metrics) for step in below},
        )


@dataclass(kw_only=True)
class _Stopping(Continuing):
    eta: int
    metrics: int
    rungs: dict[int, Line | Fronts]  # by step
    heard: dict[str, Report] = field(default_factory=dict)  # the last at a rung
    changes: int = 0  # facts that may let a trial pass that did not before
    refused: int | None = None  # a memo: at so many changes none passed

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        self.changes += not isinstance(fact, Ordered | Report) or fact.trial in self.short
        match fact:
            case Report() if fact.step in self.rungs:
                self.changes += 1
                self.rungs[fact.step].add(fact.trial, fact.vector)
                self.heard[fact.trial] = fact
            case Reopened(failed=False, report=Report() as report) if report.step in self.rungs:
                self.rungs[report.step].add(fact.trial, report.vector)
                self.heard[fact.trial] = report
            case Opened(plan=plan):
                self.steps = rungs(plan.first, plan.last, self.eta)[:-1]
                self.rungs |= {
                    step: standing(self.metrics) for step in self.steps if step not in self.rungs
                }

    def next(self) -> NewTrial | Advance | Wait | Over:
        new = self.rest() if self.closed else NewTrial(self.last, self.steps)
        return self.carry_on() or new

    def carry_on(self) -> Advance | None:
        if self.refused == self.changes:  # nothing that could let one pass has happened
            return None
        found = super().carry_on()
        self.refused = None if found else self.changes
        return found

    def goes_on(self, trial: str, step: int) -> bool:
        report = self.heard.get(trial)
        if report is None or report.step != step:  # it stands between two rungs
            return True
        return self.judge(report).verdict == "continue"

    def width(self) -> int:
        waiting = 0 if self.refused == self.changes else len(self.short)
        return len(self.running) + waiting

    def judge(self, report: Report) -> Decision:
        rung = self.rungs[report.step]
        survivors = math.ceil(len(rung) / self.eta)
        goes_on = rung.among(report.trial, report.vector, survivors)
        place = rung.place(report.trial, report.vector)
        detail = f"{place} at step {report.step}, {survivors} go on"
        return Decision("continue" if goes_on else "stop", "rung", detail)


@dataclass
class _Rung:
    """The trials that reached a rung, and those of them that wait to be promoted."""

    arrived: list[tuple[float, str]] = field(default_factory=list)  # ascending by loss
    waiting: list[tuple[float, str]] = field(default_factory=list)  # a heap; may hold the gone
    gone: set[str] = field(default_factory=set)  # promoted, or over
    at: dict[str, float] = field(default_factory=dict)  # losses of those that are not

    def arrive(self, report: Report) -> None:
        insort(self.arrived, (report.loss, report.trial))
        self.at[report.trial] = report.loss

    def wait(self, trial: str) -> None:
        heapq.heappush(self.waiting, (self.at[trial], trial))

    def leave(self, trial: str) -> None:
        del self.at[trial]
        self.gone.add(trial)

    def back(self, report: Report) -> None:
        """A trial that had left is here again; it counts once."""
        self.at[report.trial] = report.loss
        self.gone.discard(report.trial)

    def promotable(self, eta: int, closed: bool) -> str | None:
        """The best trial that waits, if it is among the best floor(n/eta) of the rung."""
        while self.waiting and self.waiting[0][1] in self.gone:
            heapq.heappop(self.waiting)
        if not self.waiting or math.isinf(self.waiting[0][0]):
            return None
        better = bisect_left(self.arrived, self.waiting[0])
        return self.waiting[0][1] if better < len(self.arrived) // eta else None


@dataclass
class _FrontRung:
    """The same by several metrics."""

    arrived: Fronts = field(default_factory=Fronts)
    waiting: set[str] = field(default_factory=set)
    best: str | None = None  # that waits, of the best floor(n/eta)
    known: bool = False  # whether `best` is up to date

    def arrive(self, report: Report) -> None:
        self.arrived.add(report.trial, report.vector)
        self.known = False

    def wait(self, trial: str) -> None:
        self.waiting.add(trial)
        self.known = False

    def leave(self, trial: str) -> None:
        self.waiting.discard(trial)
        self.known = self.known and trial != self.best

    def back(self, report: Report) -> None:
        """A trial that had left is here again; it counts once."""

    def promotable(self, eta: int, closed: bool) -> str | None:
        """The best trial that waits, if it is among the best floor(n/eta), or none dominates it.

        Trials that none dominates are let pass the share only when there are no new ones: before,
        they may be dominated yet.
        """
        if not self.known:
            self.best = self.arrived.best_of(self.waiting, len(self.arrived) // eta)
            self.known = True
        if self.best is not None or not closed or not self.arrived.fronts:
            return self.best
        return next((trial for trial in self.arrived.fronts[0] if trial in self.waiting), None)


def _rung(metrics: int) -> _Rung | _FrontRung:
    """An empty one of trials that so many metrics judge."""
    return _Rung() if metrics == 1 else _FrontRung()


@dataclass
class _Promoting(Running):
    eta: int
    steps: tuple[int, ...]
    rungs: dict[int, _Rung | _FrontRung]  # by step
    metrics: int = 1
    at: dict[str, int] = field(default_factory=dict)  # the last rung of the live
    between: dict[str, int] = field(default_factory=dict)  # that stand at no rung, and their step
    heard: dict[str, int] = field(default_factory=dict)  # the last step of each

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report():
                self.heard[fact.trial] = fact.step
                if fact.step in self.rungs:
                    self.rungs[fact.step].arrive(fact)
                    self.at[fact.trial] = fact.step
            case Paused() if fact.trial in self.at:
                self.rungs[self.at[fact.trial]].wait(fact.trial)
            case Paused():  # it was ordered before the end was moved
                self.between[fact.trial] = self.heard.get(fact.trial, 0)
            case Reopened(failed=False, report=Report() as report):
                self._return(report)
            case Reopened(report=Report() as report) if report.step in self.rungs:
                self.rungs[report.step].back(report)
                self.at[report.trial] = report.step
            case Ordered():
                self.between.pop(fact.trial, None)
                self._leave_rung(fact.trial, below=fact.until)
            case Left():
                self.between.pop(fact.trial, None)
                self._leave_rung(fact.trial, below=self.steps[-1] + 1)
            case Opened(plan=plan):
                self.steps = rungs(plan.first, plan.last, self.eta)
                new = (step for step in self.steps[:-1] if step not in self.rungs)
                self.rungs |= {step: _rung(self.metrics) for step in new}

    def _return(self, report: Report) -> None:
        """A trial that was at the end, before it was moved."""
        rung = self.rungs.get(report.step)
        if rung is None:
            self.between[report.trial] = report.step
        else:
            rung.arrive(report)
            self.at[report.trial] = report.step
            rung.wait(report.trial)

    def _leave_rung(self, trial: str, below: int) -> None:
        if trial in self.at and self.at[trial] < below:
            self.rungs[self.at.pop(trial)].leave(trial)

    def next(self) -> NewTrial | Advance | Wait | Over:
        for trial, step in self.between.items():
            return Advance(trial, next(each for each in self.steps if each > step))
        for step, after in reversed(list(zip(self.steps[:-1], self.steps[1:], strict=True))):
            best = self.rungs[step].promotable(self.eta, self.closed)
            if best is not None:
                return Advance(best, after)
        return self.rest() if self.closed else NewTrial(self.steps[0])

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "rung", f"runs to its rung, {report.step}")
