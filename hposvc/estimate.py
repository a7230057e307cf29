"""A number that is not known exactly: its value with the ends of an interval around it.

All intervals that people see hold the truth with the same probability, CONFIDENCE.

Source: for the interval of a mean, Student, The probable error of a mean, Biometrika 6 (1908).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its stats take 0.6 s, when they are first used
from numpy.typing import NDArray

from hposvc.text import finite, number, numbers, percent

CONFIDENCE = 0.9
INTERVAL = f"{percent(CONFIDENCE)} interval"


@dataclass(frozen=True)
class Estimate:
    """An estimated number with its interval."""

    value: float
    low: float = math.nan  # NaN: unknown, and so is `high`
    high: float = math.nan
    confidence: float = CONFIDENCE  # probability that the interval holds the truth

    @classmethod
    def of_draws(
        cls, drawn: Sequence[float] | NDArray[np.float64], value: float | None = None
    ) -> "Estimate":
        """Return the mean of draws, or `value`, with their central interval, widened to hold it.

        A few large draws can make a mean that is above what nearly all of them are, and people who
        read a value beside an interval without it trust neither.
        """
        value = float(np.mean(drawn)) if value is None else value
        low, high = np.quantile(drawn, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)).tolist()
        return cls(value, min(low, value), max(high, value))

    @classmethod
    def of_mean(cls, mean: float, error: float, freedom: float) -> "Estimate":
        """Return a mean with Student's interval.

        Args:
            error: the standard error of the mean; NaN: unknown.
            freedom: the degrees of freedom of the error.
        """
        if error == 0:
            return cls(mean, mean, mean)
        ends = scipy.stats.t.interval(CONFIDENCE, freedom, mean, error)
        return cls(mean, *map(float, ends))

    @property
    def known(self) -> bool:
        """Whether the interval is known."""
        return not math.isnan(self.low)

    @property
    def half(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def holds(self, value: float) -> bool:
        """Return whether a value lies within the interval; what people see is rounded, too."""
        slack = 1e-6 * max(abs(self.low), abs(self.high))
        return self.low - slack <= value <= self.high + slack

    def map(self, of: Callable[[float], float]) -> "Estimate":
        """Return the estimate of a monotonic function of the number."""
        low, high = sorted((of(self.low), of(self.high)))
        return Estimate(of(self.value), low, high, self.confidence)

    def text(self, write: Callable[[float], str] | None = None) -> str:
        """Return the value with its interval, `3.1 (2.5 to 3.9)`, or alone if they read alike.

        Args:
            write: a number, with its unit; None: with digits that tell the ends apart.
        """
        value, ends = self._texts(write)
        return f"{value} ({ends})" if ends else value

    def sure_text(self, of_what: str = "", more: str = "") -> str:
        """Return `3.1 on average (90 % sure: 2.5 to 3.9; more)`, with `of_what` after the value."""
        value, ends = self._texts(None)
        sure = f"{percent(self.confidence)} sure: {ends}" if ends else ""
        known = "; ".join(filter(None, (sure, more)))
        return f"{value}{of_what} ({known})" if known else f"{value}{of_what}"

    def ends(self, write: Callable[[float], str] | None = None) -> str:
        """Return the interval alone, `2.5 to 3.9`; empty: its ends read alike, or are unknown."""
        return self._texts(write)[1]

    def _texts(self, write: Callable[[float], str] | None) -> tuple[str, str]:
        """Return the value and the interval; an empty one is unknown, or its ends read alike."""
        if not self.known:
            return (write or number)(self.value), ""
        amounts = self.low, self.value, self.high
        low, value, high = numbers(*amounts) if write is None else map(write, amounts)
        return value, "" if low == high else f"{low} to {high}"

    def data(self, name: str = "mean") -> dict[str, Any]:
        """Return the estimate as JSON, its value by this name; null: unknown, or infinite."""
        ends = {"low": self.low, "high": self.high, "confidence": self.confidence}
        return {name: finite(self.value), **finite(ends)}
