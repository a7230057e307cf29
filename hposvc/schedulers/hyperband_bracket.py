"""A bracket of Hyperband: trials halved from rung to rung, by the rules of hyperband.py."""

import math
from dataclasses import dataclass, field

from hposvc.schedulers.rung_ranking import Losses, ranked
from hposvc.schedulers.scheduler import Closed, Fact, Left, Ordered, Paused, Report, TrialStop


@dataclass(frozen=True)
class BracketShape:
    """The number of trials and the rungs that all brackets of the same s share."""

    eta: int
    trials: int  # n of Algorithm 1: trials of a full bracket
    steps: tuple[int, ...]  # of the rungs


def bracket_shape(s: int, s_max: int, eta: int, last: int) -> BracketShape:
    """Return the shape of bracket s; `s_max` is the largest s, `last` the step of the last rung."""
    trials = -(-(s_max + 1) * eta**s // (s + 1))  # rounded up, with no float on the way
    return BracketShape(eta, trials, tuple(last // eta**left for left in range(s, -1, -1)))


@dataclass
class Rung:
    """The trials that were ordered to a rung."""

    step: int
    losses: dict[str, Losses] = field(default_factory=dict)  # infinite until they report
    under_way: set[str] = field(default_factory=set)  # trials running to the rung
    arrived: int = 0  # number of trials that were ordered to the rung
    decided: bool = False


@dataclass
class Bracket:
    """A bracket under way; all rungs below the first undecided one, the frontier, are decided."""

    number: int  # from 0, in the order begun
    shape: BracketShape
    metrics: int = 1
    trials: int = 0  # number of trials in the bracket
    full: bool = False  # whether no more new trials are expected
    rungs: list[Rung] = field(init=False)
    rung_of: dict[str, int] = field(default_factory=dict)  # index of the rung of live trials
    due: dict[str, int] = field(default_factory=dict)  # trials to order, and up to which step
    stops: dict[str, TrialStop] = field(default_factory=dict)  # of the trials that have not left

    def __post_init__(self) -> None:
        self.rungs = [Rung(step) for step in self.shape.steps]

    def apply(self, fact: Fact) -> None:
        """Take note of what happened, and decide the frontier once all its trials are there."""
        match fact:
            case Ordered(trial=trial):
                self._order(trial, self.shape.steps.index(fact.last))
            case Report(trial=trial):
                self.rungs[self.rung_of[trial]].losses[trial] = fact.vector
            case Paused(trial=trial):
                index = self.rung_of[trial]
                self.rungs[index].under_way.discard(trial)
                if self.rungs[index].decided:  # the trial comes late
                    order, count = self._ranking(index)
                    self._judge(trial, index, order.index(trial) + 1, count)
            case Left(trial=trial) if trial in self.rung_of:
                self._leave(trial, self.rungs[self.rung_of.pop(trial)])
            case Closed():
                self.full = True
        if self._complete:
            self._decide(self._frontier)

    @property
    def takes_trials(self) -> bool:
        """Whether a new trial may join: one is missing, and no trial has gone on."""
        return self.trials < self.shape.trials and not any(rung.arrived for rung in self.rungs[1:])

    @property
    def over(self) -> bool:
        """Whether no trial of the bracket runs, waits for others, or waits to be stopped."""
        rung = self._frontier_rung
        return not (self._busy or self.stops or (rung is not None and rung.losses))

    @property
    def max_concurrency(self) -> int:
        """The number of orders of the bracket that can run at once from now on."""
        rung = self._frontier_rung
        if rung is None:
            return self._busy
        heading = len(rung.under_way) + self._due_at(rung)
        there = len(rung.losses) + self._due_at(rung)
        quota = self._quota(self._frontier)
        promoted = there if self.metrics > 1 and quota else min(quota, there)
        return self._busy - heading + max(heading, promoted)

    @property
    def _busy(self) -> int:
        """The number of trials that run or are due."""
        return len(self.due) + sum(len(rung.under_way) for rung in self.rungs)

    @property
    def _frontier(self) -> int:
        """The index of the first undecided rung; beyond the last if all are decided."""
        return sum(rung.decided for rung in self.rungs)

    @property
    def _frontier_rung(self) -> Rung | None:
        return self.rungs[self._frontier] if self._frontier < len(self.rungs) else None

    @property
    def _complete(self) -> bool:
        """Whether all trials that can come to the frontier are there."""
        rung = self._frontier_rung
        if rung is None or not self.full or rung.under_way or self._due_at(rung):
            return False
        return self._frontier == 0 or bool(rung.losses)

    def _due_at(self, rung: Rung) -> int:
        """Return how many trials are due to be ordered to a rung."""
        return sum(step == rung.step for step in self.due.values())

    def _quota(self, index: int) -> int:
        """Return how many trials go on from a rung, if as many have a finite loss."""
        if index == len(self.rungs) - 1:
            return 0
        share: int = self.shape.eta ** (index + 1)
        return max(1, self.trials // share)

    def _order(self, trial: str, index: int) -> None:
        """Note that a trial runs to a rung: it is new, it goes on, or its last order was lost."""
        if trial not in self.rung_of:
            self.trials += 1
            self.full = self.full or self.trials == self.shape.trials
            self._withdraw_decision()
        elif self.rung_of[trial] == index:
            return
        else:
            self.full = True
            while self._frontier < index:  # an earlier scheduler decided with fewer trials
                self._decide(self._frontier)
            self.due.pop(trial, None)
            self.stops.pop(trial, None)
        self.rung_of[trial] = index
        rung = self.rungs[index]
        rung.losses[trial] = (math.inf,)
        rung.under_way.add(trial)
        rung.arrived += 1

    def _withdraw_decision(self) -> None:
        """Let the first rung wait for a new trial, if it was decided without it."""
        rung = self.rungs[0]
        rung.decided = False
        rung.losses = {name: loss for name, loss in rung.losses.items() if name in self.rung_of}
        self.due.clear()
        self.stops.clear()

    def _leave(self, trial: str, rung: Rung) -> None:
        """Drop a trial that is over; no other trial takes its place at the frontier."""
        if trial in rung.under_way or not rung.decided:
            rung.losses.pop(trial, None)
        rung.under_way.discard(trial)
        self.due.pop(trial, None)
        self.stops.pop(trial, None)

    def _decide(self, index: int) -> None:
        """Decide which of the trials that came to a rung go on."""
        self.rungs[index].decided = True
        order, count = self._ranking(index)
        for rank, trial in enumerate(order, 1):
            self._judge(trial, index, rank, count)

    def _ranking(self, index: int) -> tuple[list[str], int]:
        """Return the trials that came to a rung, best first, and how many of them go on."""
        rung, quota = self.rungs[index], self._quota(index)
        came = {name: loss for name, loss in rung.losses.items() if name not in rung.under_way}
        order, spared = ranked(came)
        best = order[: max(quota, spared) if quota else 0]
        return order, sum(math.isfinite(came[trial][0]) for trial in best)

    def _judge(self, trial: str, index: int, rank: int, count: int) -> None:
        """Let a trial go on if it is among the best `count` of a rung, and stop it otherwise."""
        if rank <= count:
            self.due[trial] = self.shape.steps[index + 1]
            return
        rung = self.rungs[index]
        others = f"of {rung.arrived} at step {rung.step} of bracket {self.number + 1}"
        detail = f"rank {rank} {others}, top {count} continue"
        self.stops[trial] = TrialStop(trial, "rung", detail)
