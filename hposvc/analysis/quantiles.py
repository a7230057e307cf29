"""The interval of a value that is known from draws, or from resamples."""

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
