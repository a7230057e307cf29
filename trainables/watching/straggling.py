"""Whether a rank is slow for good. Without torch: those who give orders ask this.

A report names the slowest rank and its busy time, which waits are not part of, over the median
rank's (stragglers.py). One rank is always the slowest, so a report alone says nothing: it must be
the same one in REPORTS of them in a row, by FACTOR at the median, and by more than REPORTS of such
noise can come to: MOST_NOISE standard errors of that median. Ratios are compared by their
logarithms, so that half as fast is as far from equal as twice as fast.
Sources: Ananthanarayanan et al., Reining in the Outliers in Map-Reduce Clusters using Mantri (OSDI
2010), for 1.5; Rousseeuw & Croux, Alternatives to the Median Absolute Deviation (1993), for 1.4826,
by which that deviation estimates the standard deviation of normal errors; the standard error of a
median of N is sqrt(pi / 2N) standard deviations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

REPORTS = 5
FACTOR = 1.5
MOST_NOISE = 4.0
NORMAL = 1.4826  # standard deviations in a median absolute deviation
MOST = 1e3  # times slower that a rank can be said to be


@dataclass(frozen=True)
class Seen:
    """The slowest rank of a report; factor: its busy time over that of its like (1: equal)."""

    rank: int
    factor: float


def seen(rank: int, score: float, ranks: int) -> Seen:
    """What a report says.

    Args:
        score: busy time over the median rank's. Of two ranks that is the mean, so theirs is
            turned into the ratio of the one to the other.
    """
    factor = score / (2 - score) if ranks == 2 and score < 2 else score
    return Seen(rank, min(MOST, factor) if score < 2 or ranks > 2 else MOST)


def straggler(reports: Sequence[Seen]) -> Seen | None:
    """The rank that is slow for good, with its median factor; None: none is, as far as one knows.

    Args:
        reports: in their order; the last REPORTS count.
    """
    last = reports[-REPORTS:]
    if len(last) < REPORTS or len({each.rank for each in last}) > 1:
        return None
    ratios = [math.log(max(each.factor, 1.0)) for each in last]
    middle = median(ratios)
    deviation = NORMAL * median(abs(ratio - middle) for ratio in ratios)
    noise = deviation * math.sqrt(math.pi / (2 * len(ratios)))
    if middle < math.log(FACTOR) or middle <= MOST_NOISE * noise:
        return None
    return Seen(last[-1].rank, math.exp(middle))
