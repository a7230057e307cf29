"""The interval of a value that is known from draws or resamples; the scale to compare values on."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def central(
    drawn: Sequence[float] | NDArray[np.float64], level: float, value: float
) -> tuple[float, float]:
    """Return the ends of the central interval of draws, widened to hold `value`.

    A few large draws can make a mean that is above what nearly all of them are, and people who read
    a value beside an interval without it trust neither.
    """
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2)).tolist()
    return min(low, value), max(high, value)


def spans_decades(losses: Sequence[float]) -> bool:
    """Return whether losses are compared by their ratios: positive, over 1.5 decades and more."""
    ordered = sorted(losses)
    at_90 = round(0.9 * (len(ordered) - 1))
    return bool(ordered) and ordered[0] > 0 and ordered[at_90] / ordered[0] > 30
