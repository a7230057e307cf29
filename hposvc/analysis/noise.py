"""The noise of a metric: how far equal runs lie apart, from what a sweep measured.

Sources: for the pooled deviation and its interval, Snedecor & Cochran, Statistical Methods (1989),
chapters 5 and 6; for the deviation from second differences, Gasser, Sroka & Jennen-Steinmetz,
Residual variance and residual pattern in nonlinear regression, Biometrika 73 (1986).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import gammaincinv

LEVEL = 0.9  # of the interval
HUGE = 1e100  # values beyond it are of no use: their squares exceed a float
VAGUE = 3  # degrees of freedom of a guess: it may well be wrong by a factor of two
TAIL = 6  # last reports of a curve from which its scatter is taken
Source = Literal["repeats", "curves"]


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a value that comes from random numbers alone."""

    deviation: float  # in the metric's unit; 0: equal runs gave equal values
    freedom: int  # degrees of freedom of the estimate
    source: Source  # curves: steps of one run scatter so; runs with other seeds may differ more

    @property
    def measured(self) -> bool:
        """Whether equal runs were compared; otherwise the noise is a guess."""
        return self.source == "repeats"

    @property
    def interval(self) -> tuple[float, float]:
        """The interval of the deviation, at LEVEL, for noise that is normal."""
        ends = (1 + LEVEL) / 2, (1 - LEVEL) / 2
        quantiles = (2 * float(gammaincinv(self.freedom / 2, end)) for end in ends)
        low, high = (self.deviation * math.sqrt(self.freedom / each) for each in quantiles)
        return low, high


def of_repeats(groups: Sequence[Sequence[float]]) -> Noise | None:
    """Return the pooled noise of groups of equal runs; None: no group has two values."""
    freedom = sum(len(values) - 1 for values in groups if values)
    if freedom < 1:
        return None
    squares = sum(float(((np.array(v) - np.mean(v)) ** 2).sum()) for v in groups if len(v) > 1)
    return Noise(math.sqrt(squares / freedom), freedom, "repeats")


def of_curves(curves: Sequence[Sequence[float]]) -> Noise | None:
    """Return how the last steps of learning curves scatter; None: no curve is long enough.

    Second differences leave out a straight trend; the median over curves leaves out odd ones.
    """
    variances = [
        float(np.mean(np.diff(curve[-TAIL:], 2) ** 2)) / 6 for curve in curves if len(curve) >= TAIL
    ]
    if not variances:
        return None
    return Noise(math.sqrt(float(np.median(variances))), VAGUE, "curves")
