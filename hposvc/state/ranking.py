"""The best trials of a sweep so far: a ranking of one metric, a front of several."""

import math
import operator
from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from hposvc.spec.stopping import PlateauRule
from hposvc.state.trial import TrialState
from searchers.pareto import dominates


@dataclass
class Ranking:
    """All trials with a loss, in order, so that a report needs no look at the others."""

    order: list[tuple[float, int, str]] = field(default_factory=list)  # loss, number, trial
    places: dict[str, tuple[float, int, str]] = field(default_factory=dict)  # entry of each trial

    def update(self, trial: TrialState) -> None:
        """Move a trial whose loss may have changed."""
        before = self.places.pop(trial.id, None)
        if before is not None:
            del self.order[bisect_left(self.order, before)]
        if trial.loss < math.inf:
            self.places[trial.id] = trial.loss, trial.number, trial.id
            insort(self.order, self.places[trial.id])

    def best(self) -> list[str]:
        """Return the best trial, of equals the first proposed; empty: none has a value."""
        return self.leaders(1)

    def leaders(self, most: int) -> list[str]:
        """Return this many trials at most, the best first."""
        return [name for *_, name in self.order[:most]]


@dataclass
class PlateauCounter:
    """The number of trials that ended or paused since the best value last improved enough."""

    since: int = 0
    low: float = math.inf  # the loss of the last gain
    counted: set[str] = field(default_factory=set)

    def take(self, trial: str, best: float, enough: PlateauRule | None) -> None:
        """Count a trial that ended or paused, when `best` is the lowest loss so far."""
        if best < self.low - (0.0 if enough is None else enough.delta):
            self.low, self.since = best, 0
        elif trial not in self.counted:
            self.since += 1
        self.counted.add(trial)

    def forget(self) -> None:
        """Start counting again."""
        self.since = 0


@dataclass
class Front:
    """The trials that no other trial dominates, for several metrics.

    Most reports add a trial to the front or change nothing. If a trial of the front becomes worse,
    only trials that it dominated can return: all others are in the front, or dominated by another.
    """

    trials: Mapping[str, TrialState] = field(repr=False)
    losses: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of all that have values
    front: set[str] = field(default_factory=set)

    def update(self, trial: TrialState) -> None:
        """Move a trial whose losses may have changed."""
        before, now = self.losses.pop(trial.id, None), trial.losses
        fell = before is not None and not all(map(operator.le, now, before))
        if math.isfinite(now[0]):
            self.losses[trial.id] = now
        if trial.id in self.front and before is not None and fell:
            self._fall(trial.id, before)
        if trial.id in self.losses:
            self._add(trial.id)

    def best(self) -> list[str]:
        """Return the front, in the order proposed."""
        return sorted(self.front, key=lambda name: self.trials[name].number)

    def _fall(self, fallen: str, before: tuple[float, ...]) -> None:
        """Drop a trial from the front and re-insert the trials that only it dominated."""
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
