"""Who is ahead of whom at a rung: by one loss, or front by front where there are several.

Several losses are ranked by non-dominated sorting: first the trials that no other of the rung
dominates (is nowhere worse than, and somewhere better), then those that only these dominate, and
so on. Within a front the order is that of an epsilon-net, so that whoever goes on covers it well.
Nobody is ahead of a trial that no other dominates. A diverged trial counts, and is behind all.

Source: Schmucker et al., Multi-objective Asynchronous Successive Halving (2021), §3.2; the fronts
are kept as trials come by Li et al., Efficient Nondomination Level Update Method for Steady-State
Evolutionary Multiobjective Optimization (2017), §III.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from searchers import pareto
from searchers.pareto import dominates

Losses = tuple[float, ...]


@dataclass
class Line:
    """The trials of a rung by one loss."""

    losses: list[float] = field(default_factory=list)  # ascending

    def __len__(self) -> int:
        return len(self.losses)

    def add(self, trial: str, losses: Losses) -> None:
        insort(self.losses, losses[0])

    def among(self, trial: str, losses: Losses, most: int) -> bool:
        """Whether a trial of the rung is among the best `most`."""
        return bisect_left(self.losses, losses[0]) < most and math.isfinite(losses[0])

    def place(self, trial: str, losses: Losses) -> str:
        """Where it stands, for people."""
        return f"place {bisect_left(self.losses, losses[0]) + 1} of {len(self)}"


@dataclass
class Fronts:
    """The trials of a rung by several losses."""

    fronts: list[dict[str, Losses]] = field(default_factory=list)  # none of them empty
    count: int = 0

    def __len__(self) -> int:
        return self.count

    def add(self, trial: str, losses: Losses) -> None:
        """A trial comes; those that it dominates are pushed a front back, and push in turn."""
        self.count += 1
        if not math.isfinite(losses[0]):
            return
        new, level = {trial: losses}, self._level(losses)
        while new and level < len(self.fronts):
            front = self.fronts[level]
            pushed = {
                name: old
                for name, old in front.items()
                if any(dominates(one, old) for one in new.values())
            }
            self.fronts[level] = {n: old for n, old in front.items() if n not in pushed} | new
            new, level = pushed, level + 1
        if new:
            self.fronts.append(new)

    def among(self, trial: str, losses: Losses, most: int) -> bool:
        """Whether a trial of the rung is among the best `most`, or none dominates it."""
        level = self._front_of(trial)
        if level is None or level == 0:
            return level == 0
        ahead = sum(map(len, self.fronts[:level]))
        front = self.fronts[level]
        if ahead + len(front) <= most:
            return True
        return ahead < most and trial in islice(spread(front), most - ahead)

    def place(self, trial: str, losses: Losses) -> str:
        """Where it stands, for people."""
        level = self._front_of(trial)
        where = "behind all fronts" if level is None else f"front {level + 1}"
        return f"{where} of {len(self)}"

    def first(self, most: int) -> list[str]:
        """The best `most` trials, best first."""
        found: list[str] = []
        for front in self.fronts:
            if len(found) >= most:
                break
            found += islice(spread(front), most - len(found))
        return found

    def best_of(self, some: AbstractSet[str], most: int) -> str | None:
        """The best of some trials; None: not one of them is among the best `most`.

        Only a front that leaves a choice, or that is cut by `most`, has to be spread.
        """
        for front in self.fronts:
            if most <= 0:
                break
            here = front.keys() & some
            if len(here) == 1 and len(front) <= most:
                return here.pop()
            if here:
                return next((trial for trial in islice(spread(front), most) if trial in here), None)
            most -= len(front)
        return None

    def _front_of(self, trial: str) -> int | None:
        """None: it diverged."""
        return next((n for n, front in enumerate(self.fronts) if trial in front), None)

    def _level(self, losses: Losses) -> int:
        """The first front with nobody who dominates it: every one before has somebody."""
        low, high = 0, len(self.fronts)
        while low < high:
            middle = (low + high) // 2
            if any(dominates(other, losses) for other in self.fronts[middle].values()):
                low = middle + 1
            else:
                high = middle
        return low


def ranked(losses: Mapping[str, Losses]) -> tuple[list[str], int]:
    """Trials from best to worst, and how many of the first may not be stopped.

    Equal single losses stay in the order given; diverged trials are the last.
    """
    finite = {trial: each for trial, each in losses.items() if math.isfinite(each[0])}
    rest = [trial for trial in losses if trial not in finite]
    if all(len(each) == 1 for each in finite.values()):
        return [*sorted(finite, key=finite.__getitem__), *rest], 0
    fronts = Fronts()
    for trial, each in finite.items():
        fronts.add(trial, each)
    return [*fronts.first(len(finite)), *rest], len(fronts.fronts[0])


def standing(metrics: int) -> Line | Fronts:
    """An empty rung of trials that so many metrics judge."""
    return Line() if metrics == 1 else Fronts()


def spread(front: Mapping[str, Losses]) -> Iterator[str]:
    """The trials of a front in the order in which they cover it, each found when asked for."""
    names = list(front)
    return (names[place] for place in pareto.spreading(list(front.values())))
