"""Which trials of a sweep are the best so far."""

import math
import operator
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from hposvc.spec.ending import NoGain
from hposvc.trial import TrialState
from searchers.pareto import dominates


@dataclass
class Ranking:
    """All trials with a loss, in order, so that a report costs no look at the others."""

    order: list[tuple[float, int, str]] = field(default_factory=list)  # loss, number, trial
    places: dict[str, tuple[float, int, str]] = field(default_factory=dict)  # of each trial there

    def update(self, trial: TrialState) -> None:
        """This trial's loss may be another."""
        before = self.places.pop(trial.id, None)
        if before is not None:
            del self.order[bisect_left(self.order, before)]
        if trial.loss < math.inf:
            self.places[trial.id] = trial.loss, trial.number, trial.id
            insort(self.order, self.places[trial.id])

    def best(self) -> list[str]:
        """The best trial, of equals the first proposed; empty while none has a value."""
        return self.leaders(1)

    def leaders(self, most: int) -> list[str]:
        """The best trials, the best first."""
        return [name for *_, name in self.order[:most]]


@dataclass
class Gains:
    """How many trials came to rest since the best value was last beaten by enough."""

    since: int = 0
    low: float = math.inf  # the loss that counted as a gain last
    counted: set[str] = field(default_factory=set)

    def take(self, trial: str, best: float, enough: NoGain | None) -> None:
        """A trial has come to rest, and `best` is the lowest loss of all so far."""
        if best < self.low - (0.0 if enough is None else enough.delta):
            self.low, self.since = best, 0
        elif trial not in self.counted:
            self.since += 1
        self.counted.add(trial)

    def forget(self) -> None:
        """Count from here."""
        self.since = 0


@dataclass
class Front:
    """The trials that no other dominates, where there are several metrics.

    Most reports only add to the front, or not even that. Where a trial of the front has become
    worse, only what it dominated may come back: all else is in the front, or another dominates it.
    """

    trials: Mapping[str, TrialState] = field(repr=False)
    losses: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of all that have values
    front: set[str] = field(default_factory=set)

    def update(self, trial: TrialState) -> None:
        """This trial's losses may be others."""
        before, now = self.losses.pop(trial.id, None), trial.losses
        fell = before is not None and not all(map(operator.le, now, before))
        if math.isfinite(now[0]):
            self.losses[trial.id] = now
        if trial.id in self.front and before is not None and fell:
            self._fall(trial.id, before)
        if trial.id in self.losses:
            self._add(trial.id)

    def best(self) -> list[str]:
        """The front, in the order proposed."""
        return sorted(self.front, key=lambda name: self.trials[name].number)

    def _fall(self, fallen: str, before: tuple[float, ...]) -> None:
        """It goes, and what it alone dominated comes back (itself, if that is where it fell to)."""
        self.front.discard(fallen)
        freed = [name for name, mine in self.losses.items() if dominates(before, mine)]
        for name in sorted(freed, key=self.losses.__getitem__):
            self._add(name)

    def _add(self, name: str) -> None:
        mine = self.losses[name]
        if any(dominates(self.losses[other], mine) for other in self.front):
            return
        self.front = {other for other in self.front if not dominates(mine, self.losses[other])}
        self.front.add(name)
