"""Evidence that one thing is better than another, by bets that can't win where it is not.

By Ville's inequality the wealth of such bets ever reaches 20 with probability 1/20 at most, so one
may look after each result. Source: Howard, Ramdas, McAuliffe and Sekhon, Time-uniform,
nonparametric, nonasymptotic confidence sequences, Annals of Statistics 49 (2021), section 3.2.
"""

import math
from collections.abc import Sequence

import numpy as np

LARGEST = 1e150  # loss, whose square is a float
SWEEPS = 50  # over rows and columns; a table without gaps needs one

PROOF = 20.0  # wealth that shows it: where nothing differs, one case in 20 at most


def evidence(gain: float, seeds: int, noise: float | None) -> float:
    """Return the wealth of bets that one mean loss is below another, of the same seeds.

    It is the one-sided normal mixture, as wide as the noise of one difference.

    Args:
        gain: by how much the mean is lower; it may be infinite.
        seeds: of each mean.
        noise: the standard deviation of a loss from seed to seed; None: unknown, so nothing is won.
    """
    if noise is None or not gain or math.isnan(gain):
        return 1.0
    if not noise or math.isinf(gain):
        return math.inf if gain > 0 else 0.0
    total = seeds * gain / (noise * math.sqrt(2.0))  # in standard deviations of one difference
    if not math.isfinite(total):
        return math.inf if total > 0 else 0.0
    log_half = 0.5 * total**2 / (1 + seeds) - 0.5 * math.log1p(seeds)
    share = math.erfc(-total / math.sqrt(2.0 * (1 + seeds)))  # twice the normal distribution
    if not share:
        return 0.0
    return math.exp(min(700.0, log_half + math.log(share)))


def residual(losses: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation of what neither row nor column of a table explains.

    With too few values for that, of what the row does not explain; None: not even that is known.

    Args:
        losses: rows of two finite values or more; others may be missing, or NaN.
    """
    if not losses:
        return None
    width = max(map(len, losses))
    table_NS = np.array([[*row, *[math.nan] * (width - len(row))] for row in losses])
    table_NS = np.clip(table_NS[:, np.isfinite(table_NS).any(axis=0)], -LARGEST, LARGEST)
    values, rows = int(np.isfinite(table_NS).sum()), len(losses)
    table_NS -= np.nanmean(table_NS, axis=1, keepdims=True)
    freedom = values - rows - (table_NS.shape[1] - 1)
    if freedom <= 0:
        return math.sqrt(float(np.nansum(table_NS**2)) / (values - rows))
    for _ in range(SWEEPS):
        table_NS -= np.nanmean(table_NS, axis=0)
        table_NS -= np.nanmean(table_NS, axis=1, keepdims=True)
    return math.sqrt(float(np.nansum(table_NS**2)) / freedom)
