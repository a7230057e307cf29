"""The best trials of a sweep so far: the one rule of which trial stands above which.

Once finalists were trained again their means decide in place of it (`SweepState.front`).

Values of unlike steps are never compared. A loss may rise with the step in every trial (a running
mean over harder files, over-fitting), and a trial that was stopped at its first rung then has the
lowest loss of all. So, for one metric:

1. A trial that came to its end by itself (its last step, its own return, a plateau) has a result.
   Results are compared with each other, and the best trial is the one with the best result.
2. Any other trial is compared at its last step: it stands below every trial that was better there
   and went on at least as far, and above the trials that were worse there as far as that permits.
3. While no trial has a result, the best trial is one that came at least half as far as the longest:
   the first steps of a new trial make it no leader.
4. Where the search trains with several seeds, results are means, and a mean of few seeds stands to
   one of many as a step to a later step: both are compared by the seeds that both have. It is the
   best alone if the evidence of these seeds is strong.

Trials can beat each other in a circle: a stopped trial may beat one at a rung that beats, at a
later step, the trial that the stopped one lost to. Rule 2 gives an order in any case.

For several metrics the same holds for fronts: nothing on the front is dominated by another trial
on the terms above.
"""

import math
import operator
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from hposvc.spec.stopping import PlateauRule
from hposvc.state.evidence import PROOF, evidence
from hposvc.state.trial import END, TrialState
from searchers import dominates

RankKey = tuple[float, int, str]  # loss, number, trial


class Contender(Protocol):
    """A trial to be ranked."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def number(self) -> int:
        """Its number among the proposals; of equals the first proposed stands above."""

    @property
    def place(self) -> int:
        """Its last step, or once it came to its end by itself END and its number of seeds."""

    @property
    def loss(self) -> float:
        """The loss of its value; infinite if it can't be the best."""

    def loss_at(self, place: int) -> float:
        """Return the loss of its value at a place that it reached; minus infinity: unknown."""


@dataclass
class Ranking:
    """All trials with a loss, so kept that the best needs no look at the others."""

    trials: Mapping[str, Contender] = field(repr=False)
    noise: float | None = None  # of a loss, among trials of equal seeds; None: unknown
    groups: dict[int, list[RankKey]] = field(default_factory=dict)  # by place
    places: list[int] = field(default_factory=list)  # of the groups
    _keys: dict[str, tuple[int, RankKey]] = field(default_factory=dict)
    _order: list[str] | None = None  # None: to be computed

    @classmethod
    def of(cls, trials: Mapping[str, Contender]) -> "Ranking":
        """Return the ranking of these trials."""
        ranking = cls(trials)
        for trial in trials.values():
            ranking.update(trial)
        return ranking

    def update(self, trial: Contender) -> None:
        """Move a trial that may have reported, ended or begun again."""
        self._order = None
        if (before := self._keys.pop(trial.id, None)) is not None:
            self._remove(*before)
        if trial.loss < math.inf:
            place, key = trial.place, (trial.loss, trial.number, trial.id)
            self._keys[trial.id] = place, key
            if place not in self.groups:
                self.groups[place] = []
                insort(self.places, place)
            insort(self.groups[place], key)

    def _remove(self, place: int, key: RankKey) -> None:
        keys = self.groups[place]
        del keys[bisect_left(keys, key)]
        if not keys:
            del self.groups[place]
            del self.places[bisect_left(self.places, place)]

    def results(self) -> dict[int, list[RankKey]]:
        """Return the trials that came to their ends by their number of seeds, most seeds first."""
        return {place - END: self.groups[place] for place in self.places[::-1] if place > END}

    def best(self) -> list[str]:
        """Return the best trial, of equals the first proposed; empty: none has a value."""
        if results := self.results():
            return [self._best_of(results)]
        leader, longer = None, list[int]()  # steps; to list their trials would cost as many
        for step in reversed(self.places):
            if not self._may_lead(step):
                break
            loss, _, name = self.groups[step][0]
            beaten = leader is not None and self.trials[leader].loss_at(step) <= loss
            others = (other for later in longer for *_, other in self.groups[later])
            if not beaten and all(self.trials[other].loss_at(step) > loss for other in others):
                leader = name
            longer.append(step)
        return [] if leader is None else [leader]

    def _best_of(self, results: Mapping[int, Sequence[RankKey]]) -> str:
        """Return the best mean of the most seeds, or one of fewer that is shown to be better."""
        best, *others = ((seeds, *keys[0]) for seeds, keys in results.items())
        for seeds, loss, number, name in others:
            gain = self.trials[best[-1]].loss_at(END + seeds) - loss
            if evidence(gain, seeds, self.noise) >= PROOF:
                best = seeds, loss, number, name
        return best[-1]

    def order(self) -> Sequence[str]:
        """Return all trials, the best first."""
        if self._order is None:
            order: list[str] = []
            for place in reversed(self.places):
                order = self._joined(order, place)
            best = self.best()
            self._order = [*best, *(name for name in order if name not in best)]
        return self._order

    def _joined(self, order: Sequence[str], place: int) -> list[str]:
        """Return the order with the trials at a place, which all in it went beyond.

        Each comes directly below the last one that beat it there.
        """
        losses = [self.trials[name].loss_at(place) for name in order]
        lowest = [*accumulate(reversed(losses), min)][::-1]  # from each index on: it ascends
        first = 1 if order and (self.places[-1] > END or not self._may_lead(place)) else 0
        joined: list[str] = []
        done = 0
        for loss, _, name in self.groups[place]:
            index = max(first, bisect_right(lowest, loss))
            joined += [*order[done:index], name]
            done = max(done, index)
        return [*joined, *order[done:]]

    def _may_lead(self, step: int) -> bool:
        return 2 * step >= self.places[-1]


def improvement(before: TrialState, best: TrialState) -> float:
    """Return by how much the best trial is better than the one before it, on equal terms.

    Infinite if it is the first with a result. It may be negative: the one before failed since.
    """
    if best.at_end and not before.at_end:
        return math.inf
    place = min(before.place, best.place)
    return before.loss_at(place) - best.loss_at(place)


@dataclass
class PlateauCounter:
    """The number of trials that ended or paused since the best trial last improved enough."""

    since: int = 0
    best: str | None = None  # the trial of the last gain; None: there was none yet
    by_result: bool = False  # whether it had come to its end by then
    low: float = math.inf  # its loss then
    counted: set[str] = field(default_factory=set)

    def take(
        self,
        trial: str,
        best: str | None,
        trials: Mapping[str, TrialState],
        enough: PlateauRule | None,
    ) -> None:
        """Count a trial that ended or paused; `best` is the best trial, if there is one."""
        least = 0.0 if enough is None else enough.delta
        if best is not None and self._gain(trials[best], trials) > least:
            self.best, self.low = best, trials[best].loss
            self.by_result, self.since = trials[best].at_end, 0
        elif trial not in self.counted:
            self.since += 1
        self.counted.add(trial)

    def _gain(self, best: TrialState, trials: Mapping[str, TrialState]) -> float:
        if self.best is None or (best.at_end and not self.by_result):
            return math.inf
        return improvement(trials[self.best], best)

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
    losses: dict[str, tuple[float, ...]] = field(default_factory=dict)  # of trials with a result
    front: set[str] = field(default_factory=set)  # of these
    unfinished: set[str] = field(default_factory=set)  # the others that have values
    noise: float | None = None  # of the first loss, among trials of equal seeds; None: unknown

    def update(self, trial: TrialState) -> None:
        """Move a trial that may have reported, ended or begun again."""
        before, now = self.losses.pop(trial.id, None), trial.losses
        self.unfinished.discard(trial.id)
        if not trial.at_end:
            if math.isfinite(now[0]):
                self.unfinished.add(trial.id)
            now = (math.inf,) * len(now)
        fell = before is not None and not all(map(operator.le, now, before))
        if math.isfinite(now[0]):
            self.losses[trial.id] = now
        if trial.id in self.front and before is not None and fell:
            self.front.discard(trial.id)
            # Trials that only this one dominated come back.
            freed = [name for name, losses in self.losses.items() if dominates(before, losses)]
            for name in sorted(freed, key=self.losses.__getitem__):
                self._add(name)
        if trial.id in self.losses:
            self._add(trial.id)

    def best(self) -> list[str]:
        """Return the front, in the order proposed."""
        front = self.front or self._leaders()
        return sorted(front, key=lambda name: self.trials[name].number)

    def order(self) -> Sequence[str]:
        """Return all trials: the front, the other results, then those that went furthest."""
        front = set(self.best())
        ranked = [self.trials[name] for name in (*self.losses, *self.unfinished)]

        def rank_key(trial: TrialState) -> tuple[bool, bool, int, tuple[float, ...], int]:
            step = 0 if trial.at_end else -trial.step
            return trial.id not in front, not trial.at_end, step, trial.losses, trial.number

        return [trial.id for trial in sorted(ranked, key=rank_key)]

    def _leaders(self) -> list[str]:
        """Return the front of the trials that came far enough, while there is no result."""
        furthest = max((self.trials[name].step for name in self.unfinished), default=0)
        able = [self.trials[name] for name in self.unfinished]
        able = [trial for trial in able if 2 * trial.step >= furthest]
        return [
            trial.id
            for trial in able
            if not any(
                dominates(other.losses_at(trial.step), trial.losses)
                for other in able
                if other.step >= trial.step
            )
        ]

    def _add(self, name: str) -> None:
        mine = self.losses[name]
        if any(dominates(self.losses[other], mine) for other in self.front):
            return
        self.front = {other for other in self.front if not dominates(mine, self.losses[other])}
        self.front.add(name)
