"""What a problem of a public suite is: a space, what a searcher is told, and what counts.

A *gap* is what a search still has to go, 0 at the best that exists: of one loss, how far the best
configuration so far is above the optimum (infinite while none keeps all limits).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchers import Space

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What an evaluation gives."""

    losses: tuple[float, ...]  # as a searcher is told them, one for each objective
    true: float  # the first loss without noise
    excess: tuple[float, ...] = ()  # over each limit; up to 0: the limit is kept


Gaps = Callable[[Sequence[Params], Sequence[Outcome]], list[float]]


@dataclass(frozen=True)
class Problem:
    """A problem; `gaps` has as many numbers as it gets evaluations."""

    space: Space
    evaluate: Callable[[Params], Outcome]
    gaps: Gaps
    objectives: int = 1


def above(best: float) -> Gaps:
    """Return the gaps of one loss, whose optimum is `best`.

    With noise the incumbent is what looks best, and its true loss counts.
    """

    def gaps(_: Sequence[Params], outcomes: Sequence[Outcome]) -> list[float]:
        found, lowest, gap = [], math.inf, math.inf
        for outcome in outcomes:
            keeps_limits = all(excess <= 0 for excess in outcome.excess)
            if keeps_limits and outcome.losses[0] < lowest:
                lowest, gap = outcome.losses[0], max(outcome.true - best, 0.0)
            found.append(gap)
        return found

    return gaps
