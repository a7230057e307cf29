"""Ranking of the trials of a rung: by one loss, or front by front by several.

Several losses are ranked by non-dominated sorting. The first front holds the trials that no other
trial of the rung dominates (is nowhere worse and somewhere better), the second front the trials
that only the first dominates, and so on. Within a front the order is that of an epsilon-net, so
that the trials going on cover the front well. A trial of the first front is never stopped in favour
of another. A diverged trial counts as one of the rung and ranks behind all fronts.

Source: Schmucker et al., Multi-objective Asynchronous Successive Halving (2021), §3.2; the fronts
are updated trial by trial as in Li et al., Efficient Nondomination Level Update Method for
Steady-State Evolutionary Multiobjective Optimization (2017), §III.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from searchers import dominates, spreading

Losses = tuple[float, ...]


@dataclass
class LossRanking:
    """The trials of a rung, ranked by one loss."""

    losses: list[float] = field(default_factory=list)  # ascending

    def __len__(self) -> int:
        return len(self.losses)

    def add(self, trial: str, losses: Losses) -> None:
        insort(self.losses, losses[0])

    def is_among_best(self, trial: str, losses: Losses, limit: int) -> bool:
        """Return whether a trial of the rung is among the best `limit`."""
        return bisect_left(self.losses, losses[0]) < limit and math.isfinite(losses[0])

    def describe_rank(self, trial: str, losses: Losses) -> str:
        """Return the rank of a trial, in words for people."""
        return f"rank {bisect_left(self.losses, losses[0]) + 1} of {len(self)}"


@dataclass
class Fronts:
    """The trials of a rung, ranked front by front by several losses."""

    fronts: list[dict[str, Losses]] = field(default_factory=list)  # best first; none is empty
    count: int = 0

    def __len__(self) -> int:
        return self.count

    def add(self, trial: str, losses: Losses) -> None:
        """Add a trial; the trials it dominates move one front back, and push others in turn."""
        self.count += 1
        if not math.isfinite(losses[0]):
            return
        new, level = {trial: losses}, self._first_undominated(losses)
        while new and level < len(self.fronts):
            front = self.fronts[level]
            pushed = {
                name: old
                for name, old in front.items()
                if any(dominates(better, old) for better in new.values())
            }
            self.fronts[level] = {n: old for n, old in front.items() if n not in pushed} | new
            new, level = pushed, level + 1
        if new:
            self.fronts.append(new)

    def is_among_best(self, trial: str, losses: Losses, limit: int) -> bool:
        """Return whether a trial of the rung is among the best `limit`, or not dominated at all."""
        level = self._front_index(trial)
        if level is None or level == 0:
            return level == 0
        ahead = sum(map(len, self.fronts[:level]))
        front = self.fronts[level]
        if ahead + len(front) <= limit:
            return True
        return ahead < limit and trial in islice(spread(front), limit - ahead)

    def describe_rank(self, trial: str, losses: Losses) -> str:
        """Return the rank of a trial, in words for people."""
        level = self._front_index(trial)
        rank = "behind all fronts" if level is None else f"front {level + 1}"
        return f"{rank} of {len(self)}"

    def best(self, limit: int) -> list[str]:
        """Return the best `limit` trials, best first."""
        names: list[str] = []
        for front in self.fronts:
            if len(names) >= limit:
                break
            names += islice(spread(front), limit - len(names))
        return names

    def best_of(self, some: AbstractSet[str], limit: int) -> str | None:
        """Return the best of some trials; None: none of them is among the best `limit`.

        Only a front with several candidates, or with more than `limit` trials, has to be spread.
        """
        for front in self.fronts:
            if limit <= 0:
                break
            candidates = front.keys() & some
            if len(candidates) == 1 and len(front) <= limit:
                return candidates.pop()
            if candidates:
                return next(
                    (trial for trial in islice(spread(front), limit) if trial in candidates), None
                )
            limit -= len(front)
        return None

    def _front_index(self, trial: str) -> int | None:
        """Return the index of a trial's front; None: the trial diverged."""
        return next((n for n, front in enumerate(self.fronts) if trial in front), None)

    def _first_undominated(self, losses: Losses) -> int:
        """Return the index of the first front in which no trial dominates these losses.

        In every front before it some trial does, so a binary search finds it.
        """
        low, high = 0, len(self.fronts)
        while low < high:
            middle = (low + high) // 2
            if any(dominates(other, losses) for other in self.fronts[middle].values()):
                low = middle + 1
            else:
                high = middle
        return low


def ranked(losses: Mapping[str, Losses]) -> tuple[list[str], int]:
    """Return the trials from best to worst, and how many of the first may not be stopped.

    Trials with equal single losses stay in the order given; diverged trials come last.
    """
    finite = {trial: vector for trial, vector in losses.items() if math.isfinite(vector[0])}
    diverged = [trial for trial in losses if trial not in finite]
    if all(len(vector) == 1 for vector in finite.values()):
        return [*sorted(finite, key=finite.__getitem__), *diverged], 0
    fronts = Fronts()
    for trial, vector in finite.items():
        fronts.add(trial, vector)
    return [*fronts.best(len(finite)), *diverged], len(fronts.fronts[0])


def empty_ranking(metrics: int) -> LossRanking | Fronts:
    """Return an empty rung for trials judged by this number of metrics."""
    return LossRanking() if metrics == 1 else Fronts()


def spread(front: Mapping[str, Losses]) -> Iterator[str]:
    """Yield the trials of a front in the order in which they cover it, computed one at a time."""
    names = list(front)
    return (names[index] for index in spreading(list(front.values())))
