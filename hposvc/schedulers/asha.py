"""Asynchronous successive halving (ASHA), by stopping or by promotion.

Rungs lie at first, first*eta, first*eta^2, … and the end. The best 1/eta of the trials that reached
a rung go on. `promote` is Algorithm 2 of the paper: a trial pauses at each rung and goes on as soon
as it is among the best floor(n/eta) of the n trials that reached the rung. `stop` decides once, on
arrival: a trial goes on if it is among the best ceil(n/eta) of the n trials that arrived so far,
itself included, so the first trial of a rung always goes on. A diverged trial is the worst of its
rung.

With several metrics a rung is ranked front by front (rung_ranking.py), and a trial that no other
trial of its rung dominates is never stopped. In mode `stop` it goes on at arrival even if the share
is used up; in mode `promote` it is promoted, at the latest, when no new trials come any more.

Source: Li et al., A System for Massively Parallel Hyperparameter Tuning (MLSys 2020), §3.2 and
§3.3; the stopping variant is from Klein et al., Model-based Asynchronous Hyperparameter and Neural
Architecture Search (2020), §3.
"""

import heapq
import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from hposvc.schedulers.resumable import Resumable
from hposvc.schedulers.rung_ranking import Fronts, LossRanking, empty_ranking
from hposvc.schedulers.scheduler import (
    FIRST_PART,
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
    Wait,
    rungs,
)
from searchers import COUNT, AtMost


@dataclass(frozen=True)
class Asha:
    """Successive halving that never waits for a rung to fill."""

    eta: Annotated[int, AtMost(COUNT)] = 3  # one trial in eta goes on from a rung
    # None: promote if a check of the spec finds that trials go on from their checkpoints, else stop
    mode: Literal["stop", "promote"] | None = None
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.eta < 2:
            raise ValueError(
                f"eta is {self.eta}; choose a whole number from 2 up (the paper has 4)"
            )

    @property
    def ends_steadily(self) -> bool:
        """Whether trials end one after another; paused ones all end in the last rung."""
        return not self.promotes

    @property
    def promotes(self) -> bool:
        """Whether trials go on one by one, each as soon as it is among the best of its rung."""
        return self.mode == "promote"

    def first_rung(self, plan: Plan) -> int:
        """Return a 20th of the last step, or a later one if trials are few.

        What shows in the first steps of a training misleads: on LCBench's curves of 27 and of 50
        epochs a first rung at 2 or 3 was better than one at 1. Over k rungs one trial in eta^k
        comes to the end, so of fewer trials none would.
        """
        share = self.eta
        while share < FIRST_PART and (plan.trials is None or share * self.eta <= plan.trials):
            share *= self.eta
        return -(-plan.last // min(share, FIRST_PART))

    def missing_options(self, plan: Plan, resumes: bool) -> dict[str, str | float]:
        """Return the mode: with checkpoints, and trials enough for one to come to the end, promote.

        A weak trial is then not stopped for good.
        """
        promotes = resumes and not self._too_few(plan)
        return {} if self.mode else {"mode": "promote" if promotes else "stop"}

    def describe(self, plan: Plan, unit: str) -> str:
        """Say what happens at the rungs, and how few trials come to the end."""
        steps = self.rungs(plan)[:-1]
        if not steps:
            return f"No trial is judged before {unit} {plan.last}: each runs to its end."
        share, rungs = f"the best 1/{self.eta}", ", ".join(map(str, steps))
        what = f"a trial pauses, and {share} go on from their checkpoints"
        if not self.promotes:
            what = f"a trial ends unless it is among {share} so far"
        end = f"About one in {self.eta ** len(steps)} comes to the end"
        if self.promotes and self._too_few(plan):
            end += f", and with {plan.trials} trials perhaps none: give more, or raise fidelity.min"
        return f"At {unit} {rungs} {what}. {end}."

    def _too_few(self, plan: Plan) -> bool:
        """Return whether there are too few trials for one to pass all rungs by promotions."""
        return plan.trials is not None and self.eta ** (len(self.rungs(plan)) - 1) > plan.trials

    def rungs(self, plan: Plan) -> tuple[int, ...]:
        """Return the steps at which trials are compared, and the last one."""
        return rungs(plan.first, plan.last, self.eta)

    def scheduler(self, plan: Plan) -> Scheduler:
        steps = self.rungs(plan)
        below, metrics = steps[:-1], plan.metrics
        if self.promotes:
            rungs = {step: _Rung() if metrics == 1 else _FrontRung() for step in below}
            return _Promoting(self.eta, steps, rungs)
        return _Stopping(
            last=plan.last,
            steps=below,
            eta=self.eta,
            rungs={step: empty_ranking(metrics) for step in below},
        )


@dataclass(kw_only=True)
class _Stopping(Resumable):
    eta: int
    rungs: dict[int, LossRanking | Fronts]  # by step
    last_reports: dict[str, Report] = field(default_factory=dict)  # last report at a rung, by trial
    refused: bool = False  # memo: no idle trial is good enough to go on

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report() if fact.step in self.rungs:
                self.rungs[fact.step].add(fact.trial, fact.vector)
                self.last_reports[fact.trial] = fact
                self.refused = False
            case Paused():
                self.refused = False

    def resume_next(self) -> Advance | None:
        advance = None if self.refused else super().resume_next()
        self.refused = advance is None
        return advance

    def goes_on(self, trial: str, step: int) -> bool:
        report = self.last_reports.get(trial)
        if report is None or report.step != step:  # the trial is between two rungs
            return True
        return self.judge(report).verdict == "continue"

    def max_concurrency(self) -> int:
        return len(self.running) + (0 if self.refused else len(self.unfinished))

    def judge(self, report: Report) -> Decision:
        rung = self.rungs[report.step]
        survivors = math.ceil(len(rung) / self.eta)
        goes_on = rung.is_among_best(report.trial, report.vector, survivors)
        rank = rung.describe_rank(report.trial, report.vector)
        detail = f"{rank} at step {report.step}, top {survivors} continue"
        return Decision("continue" if goes_on else "stop", "rung", detail)


@dataclass
class _Rung:
    """The trials that reached a rung, and those waiting for promotion, by one metric."""

    arrived: list[tuple[float, str]] = field(default_factory=list)  # ascending by loss
    waiting: list[tuple[float, str]] = field(default_factory=list)  # a heap; may hold gone trials
    gone: set[str] = field(default_factory=set)  # trials promoted, or over
    losses: dict[str, float] = field(default_factory=dict)  # of the trials not gone

    def arrive(self, report: Report) -> None:
        insort(self.arrived, (report.loss, report.trial))
        self.losses[report.trial] = report.loss

    def wait(self, trial: str) -> None:
        heapq.heappush(self.waiting, (self.losses[trial], trial))

    def leave(self, trial: str) -> None:
        del self.losses[trial]
        self.gone.add(trial)

    def promotable(self, eta: int, closed: bool) -> str | None:
        """Return the best waiting trial if it is among the best floor(n/eta) of the rung."""
        while self.waiting and self.waiting[0][1] in self.gone:
            heapq.heappop(self.waiting)
        if not self.waiting or math.isinf(self.waiting[0][0]):
            return None
        better = bisect_left(self.arrived, self.waiting[0])
        return self.waiting[0][1] if better < len(self.arrived) // eta else None


@dataclass
class _FrontRung:
    """The trials that reached a rung, and those waiting for promotion, by several metrics."""

    arrived: Fronts = field(default_factory=Fronts)
    waiting: set[str] = field(default_factory=set)
    candidate: str | None = None  # best waiting trial, if among the best floor(n/eta)
    candidate_is_current: bool = False  # whether `candidate` is up to date

    def arrive(self, report: Report) -> None:
        self.arrived.add(report.trial, report.vector)
        self.candidate_is_current = False

    def wait(self, trial: str) -> None:
        self.waiting.add(trial)
        self.candidate_is_current = False

    def leave(self, trial: str) -> None:
        self.waiting.discard(trial)
        self.candidate_is_current = self.candidate_is_current and trial != self.candidate

    def promotable(self, eta: int, closed: bool) -> str | None:
        """Return the best waiting trial among the best floor(n/eta), or a non-dominated one.

        Non-dominated trials beyond that share are promoted only when no new trials come: until
        then a new trial may dominate them.
        """
        if not self.candidate_is_current:
            self.candidate = self.arrived.best_of(self.waiting, len(self.arrived) // eta)
            self.candidate_is_current = True
        if self.candidate is not None or not closed or not self.arrived.fronts:
            return self.candidate
        return next((trial for trial in self.arrived.fronts[0] if trial in self.waiting), None)


@dataclass
class _Promoting(Running):
    eta: int
    steps: tuple[int, ...]
    rungs: dict[int, _Rung | _FrontRung]  # by step
    rung_of: dict[str, int] = field(default_factory=dict)  # step of a live trial's rung
    between: dict[str, int] = field(default_factory=dict)  # step of paused trials at no rung
    last_steps: dict[str, int] = field(default_factory=dict)  # last reported step of each trial

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        match fact:
            case Report():
                self.last_steps[fact.trial] = fact.step
                if fact.step in self.rungs:
                    self.rungs[fact.step].arrive(fact)
                    self.rung_of[fact.trial] = fact.step
            case Paused() if fact.trial in self.rung_of:
                self.rungs[self.rung_of[fact.trial]].wait(fact.trial)
            case Paused():  # the trial was ordered before the end was moved
                self.between[fact.trial] = self.last_steps.get(fact.trial, 0)
            case Ordered():
                self.between.pop(fact.trial, None)
                self._leave_rung(fact.trial, below=fact.last)
            case Left():
                self.between.pop(fact.trial, None)
                self._leave_rung(fact.trial, below=self.steps[-1] + 1)

    def _leave_rung(self, trial: str, below: int) -> None:
        if trial in self.rung_of and self.rung_of[trial] < below:
            self.rungs[self.rung_of.pop(trial)].leave(trial)

    def next(self) -> NewTrial | Advance | Wait | SearchDone:
        for trial, step in self.between.items():
            return Advance(trial, next(rung for rung in self.steps if rung > step))
        for step, after in reversed(list(zip(self.steps[:-1], self.steps[1:], strict=True))):
            best = self.rungs[step].promotable(self.eta, self.closed)
            if best is not None:
                return Advance(best, after)
        return self.idle_move() if self.closed else NewTrial(self.steps[0])

    def judge(self, report: Report) -> Decision:
        return Decision("continue", "rung", f"runs to its rung, {report.step}")
