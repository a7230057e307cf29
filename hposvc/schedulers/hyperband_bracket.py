"""A bracket of Hyperband: trials halved from rung to rung, by the rules of hyperband.py."""

import math
from dataclasses import dataclass, field

from hposvc.schedulers.rung_ranking import Losses, ranked
from hposvc.schedulers.scheduler import TrialStop


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
class Bracket:
    """A bracket under way, at one of its rungs."""

    number: int  # from 0, in the order begun
    shape: BracketShape
    metrics: int = 1
    trials: int = 0  # number of trials in the bracket
    full: bool = False  # whether no more new trials are expected
    rung: int = 0  # index of the current rung
    arrived: int = 0  # number of trials that came to the current rung
    decided_losses: dict[int, dict[str, Losses]] = field(default_factory=dict)  # by rung
    losses: dict[str, Losses] = field(default_factory=dict)  # of trials at the rung, not yet left
    under_way: set[str] = field(default_factory=set)  # trials running to the rung, or about to
    due: dict[str, None] = field(default_factory=dict)  # trials to order to `target`, best first
    decided: bool = False  # the rung is decided, and no trial has gone on from it yet

    @property
    def quota(self) -> int:
        """The number of trials that go on from the current rung, if as many have a finite loss."""
        return self.quota_of(self.rung)

    def quota_of(self, rung: int) -> int:
        """Return how many trials go on from a rung, if as many have a finite loss."""
        if rung == len(self.shape.steps) - 1:
            return 0
        share: int = self.shape.eta ** (rung + 1)
        return max(1, self.trials // share)

    @property
    def target(self) -> int:
        """The step to which due trials are ordered."""
        return self.shape.steps[self.rung + self.decided]

    @property
    def max_concurrency(self) -> int:
        """The number of orders of the bracket that can run at once from now on."""
        promoted = self.quota if self.metrics == 1 or self.quota == 0 else len(self.losses)
        return max(len(self.under_way), len(self.due), min(promoted, len(self.losses)))

    def enter(self, trial: str) -> None:
        """Add a new trial to the first rung; a decision made without it is withdrawn."""
        self.trials += 1
        self.arrived += 1
        self.full = self.full or self.trials == self.shape.trials
        self.losses[trial] = (math.inf,)
        self.under_way.add(trial)
        self.due.clear()
        self.decided = False

    def promote(self, trial: str) -> None:
        """Note that a due trial was ordered; the first one moves the bracket to its next rung."""
        if self.decided:
            self.rung += 1
            self.arrived = len(self.due)
            self.losses = dict.fromkeys(self.due, (math.inf,))
            self.under_way = set(self.due)
            self.decided = False
        del self.due[trial]

    def is_undecided_at(self, rung: int) -> bool:
        """Return whether the bracket is at this rung and has not decided it yet."""
        return rung == self.rung and not self.decided

    def add_late(self, trial: str, losses: Losses, *, under_way: bool) -> None:
        """Add a late trial to the current rung; `under_way`: it still runs to the rung."""
        self.losses[trial] = losses
        if under_way:
            self.under_way.add(trial)

    def late_rank(self, trial: str, losses: Losses, rung: int) -> tuple[int, int]:
        """Return the rank of a late trial at a decided rung, and how many would have gone on."""
        compared = {**self.decided_losses[rung], trial: losses}
        order, spared = ranked(compared)
        finite = sum(math.isfinite(vector[0]) for vector in compared.values())
        return order.index(trial) + 1, min(max(self.quota_of(rung), spared), finite)

    def leave(self, trial: str) -> None:
        """Drop a trial that is over; no other trial takes its place."""
        self.losses.pop(trial, None)
        self.under_way.discard(trial)
        self.due.pop(trial, None)

    @property
    def complete(self) -> bool:
        """Whether the rung can be decided and is not decided yet."""
        return self.full and not self.under_way and not self.decided

    def decide(self) -> list[TrialStop]:
        """Decide which trials go on from the rung, and return the stops of the others."""
        order, spared = ranked(self.losses)
        quota = max(self.quota, spared) if self.quota else 0
        chosen = [trial for trial in order[:quota] if math.isfinite(self.losses[trial][0])]
        self.due = dict.fromkeys(chosen)
        self.decided = True
        self.decided_losses[self.rung] = dict(self.losses)
        step = self.shape.steps[self.rung]
        others = f"of {self.arrived} at step {step} of bracket {self.number + 1}"
        others = f"{others}, top {len(chosen)} continue"
        return [
            TrialStop(trial, "rung", f"rank {rank} {others}")
            for rank, trial in enumerate(order[len(chosen) :], len(chosen) + 1)
        ]
