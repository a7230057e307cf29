"""Detection of a rank that is permanently slow. Without torch: the driver uses this.

A report names the slowest rank and the ratio of its busy time, without waits, to the median rank's
(stragglers.py). Some rank is always the slowest, so a single report says nothing: the slowest must
be the same rank in REPORTS reports in a row, their median ratio must be FACTOR or more, and above
what noise explains: MOST_NOISE standard errors of that median. Ratios are compared by their
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
MOST = 1e3  # the largest factor reported


@dataclass(frozen=True)
class SlowestRank:
    """The slowest rank of a report; `factor` is its busy time over a typical rank's (1: equal)."""

    rank: int
    factor: float


def slowest_rank(rank: int, score: float, ranks: int) -> SlowestRank:
    """Return the slowest rank of a report.

    Args:
        score: its busy time over the median rank's. With two ranks the median is the mean, so the
            score is converted into the ratio of one rank's time to the other's.
    """
    factor = score / (2 - score) if ranks == 2 and score < 2 else score
    return SlowestRank(rank, min(MOST, factor) if score < 2 or ranks > 2 else MOST)


def straggler(reports: Sequence[SlowestRank]) -> SlowestRank | None:
    """Return the permanently slow rank, with its median factor; None if no rank is known to be.

    Args:
        reports: in order of time; the last REPORTS count.
    """
    last = reports[-REPORTS:]
    if len(last) < REPORTS or len({report.rank for report in last}) > 1:
        return None
    ratios = [math.log(max(report.factor, 1.0)) for report in last]
    median_ratio = median(ratios)
    deviation = NORMAL * median(abs(ratio - median_ratio) for ratio in ratios)
    noise = deviation * math.sqrt(math.pi / (2 * len(ratios)))
    if median_ratio < math.log(FACTOR) or median_ratio <= MOST_NOISE * noise:
        return None
    return SlowestRank(last[-1].rank, math.exp(median_ratio))
