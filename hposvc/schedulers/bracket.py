"""One bracket of Hyperband: trials that halve from rung to rung, by the rules of hyperband.py."""

import math
from dataclasses import dataclass, field

from hposvc.schedulers.scheduler import Cut
from hposvc.schedulers.standing import Losses, ranked


@dataclass(frozen=True)
class Kind:
    """What the brackets of one s have in common."""

    eta: int
    trials: int  # n
    steps: tuple[int, ...]  # of the rungs


def kind_of(s: int, most: int, eta: int, last: int) -> Kind:
    """The kind of s, where `most` is the largest s that there is, and `last` the highest rung."""
    trials = -(-(most + 1) * eta**s // (s + 1))  # rounded up, with no float on the way
    return Kind(eta, trials, tuple(last // eta**left for left in range(s, -1, -1)))


@dataclass
class Bracket:
    """A bracket under way, at one of its rungs."""

    number: int  # from 0, in the order begun
    kind: Kind
    metrics: int = 1
    trials: int = 0  # that came to it
    full: bool = False  # no more come, as far as is known
    rung: int = 0
    came: int = 0  # trials that came to the rung
    settled: dict[int, dict[str, Losses]] = field(default_factory=dict)  # by rung, once decided
    losses: dict[str, Losses] = field(default_factory=dict)  # of those of them that have not left
    out: set[str] = field(default_factory=set)  # those that run, or are to
    due: dict[str, None] = field(default_factory=dict)  # to be ordered to `target`, best first
    decided: bool = False  # who goes on from the rung; until the first of them does

    @property
    def quota(self) -> int:
        """How many go on from the rung it is at, if so many have a finite loss."""
        return self.quota_of(self.rung)

    def quota_of(self, rung: int) -> int:
        """How many go on from a rung."""
        if rung == len(self.kind.steps) - 1:
            return 0
        share: int = self.kind.eta ** (rung + 1)
        return max(1, self.trials // share)

    @property
    def target(self) -> int:
        """The step to which those that are due go."""
        return self.kind.steps[self.rung + self.decided]

    @property
    def width(self) -> int:
        """How many orders it may have out at once from here on."""
        most = self.quota if self.metrics == 1 or self.quota == 0 else len(self.losses)
        return max(len(self.out), len(self.due), min(most, len(self.losses)))

    def enter(self, trial: str) -> None:
        """A new trial comes; a decision that was made without it does not stand."""
        self.trials += 1
        self.came += 1
        self.full = self.full or self.trials == self.kind.trials
        self.losses[trial] = (math.inf,)
        self.out.add(trial)
        self.due.clear()
        self.decided = False

    def promote(self, trial: str) -> None:
        """One of those due goes on; the first of them takes the bracket to its next rung."""
        if self.decided:
            self.rung += 1
            self.came = len(self.due)
            self.losses = dict.fromkeys(self.due, (math.inf,))
            self.out = set(self.due)
            self.decided = False
        del self.due[trial]

    def undecided(self, rung: int) -> bool:
        """Whether that is where it is, and who goes on from there is still open."""
        return rung == self.rung and not self.decided

    def join(self, trial: str, losses: Losses, *, out: bool) -> None:
        """A trial that was late is one of those at the rung; on its way there, or there."""
        self.losses[trial] = losses
        if out:
            self.out.add(trial)

    def place(self, trial: str, losses: Losses, rung: int) -> tuple[int, int]:
        """Where a late trial would have come in a decided rung, and how many would go on."""
        there = {**self.settled[rung], trial: losses}
        order, spared = ranked(there)
        finite = sum(math.isfinite(each[0]) for each in there.values())
        return order.index(trial) + 1, min(max(self.quota_of(rung), spared), finite)

    def leave(self, trial: str) -> None:
        """It is over; its place stays empty."""
        self.losses.pop(trial, None)
        self.out.discard(trial)
        self.due.pop(trial, None)

    @property
    def complete(self) -> bool:
        """Whether the rung can be decided, and is not."""
        return self.full and not self.out and not self.decided

    def decide(self) -> list[Cut]:
        """Say who goes on from the rung, and who is cut."""
        order, spared = ranked(self.losses)
        quota = max(self.quota, spared) if self.quota else 0
        chosen = [trial for trial in order[:quota] if math.isfinite(self.losses[trial][0])]
        self.due = dict.fromkeys(chosen)
        self.decided = True
        self.settled[self.rung] = dict(self.losses)
        step = self.kind.steps[self.rung]
        where = f"of {self.came} at step {step} of bracket {self.number + 1}, {len(chosen)} go on"
        return [
            Cut(trial, "rung", f"place {place} {where}")
            for place, trial in enumerate(order[len(chosen) :], len(chosen) + 1)
        ]
