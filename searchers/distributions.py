"""Distributions by which values are drawn: weights of a choice, a normal distribution of a range.

They say how values are drawn at random, and change neither which values there are nor where these
lie in the unit cube. A draw is a quantile, a number that is uniform in [0, 1]; `place` is the place
in the unit interval of the value at a quantile, and `quantile` its inverse. Without a distribution
both are the identity.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from searchers.values import SpaceError, Value, is_number

Array = NDArray[np.float64]

# In shares of the range. Narrower, nearly all draws are one value; wider, all are alike.
NARROWEST, WIDEST = 1e-3, 1e3
SIGMAS = 3.0  # between these, on both sides of the mean, are 99.7 % of a normal distribution


@dataclass(frozen=True)
class Normal:
    """A normal distribution on a range's own scale, cut off at its ends.

    On a logarithmic scale the mean is that of the logarithm, given as a value of the range, and the
    deviation is that of the natural logarithm: 0.69 is a factor of two.
    """

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        for name in ("mean", "deviation"):
            number = getattr(self, name)
            if not is_number(number):
                raise SpaceError((name,), f"is {number!r}; give a finite number")
            object.__setattr__(self, name, float(number))
        if self.deviation <= 0:
            raise SpaceError(("deviation",), f"is {self.deviation:g}; give a number above 0")

    def check(self, low: float, high: float, width: float) -> None:
        """Check that the distribution suits a range.

        Args:
            width: of the range, on its own scale.
        """
        if not low <= self.mean <= high:
            raise SpaceError(("mean",), f"is {self.mean:g}, outside {low} to {high}")
        share = self.deviation / width
        if not NARROWEST <= share <= WIDEST:
            remedy = "narrow the range" if share < NARROWEST else "leave normal out"
            message = f"is {self.deviation:g}, {share:.1g} times the range's width of {width:.3g}"
            raise SpaceError(("deviation",), f"{message}; {remedy}")


def ends_of(mean: float, deviation: float) -> tuple[float, float]:
    """Return the ends of a range that holds nearly all of a normal distribution."""
    return mean - SIGMAS * deviation, mean + SIGMAS * deviation


@dataclass(frozen=True)
class Truncated:
    """A normal distribution in the unit interval, cut off at 0 and 1."""

    mean: float
    deviation: float

    def at_quantile(self, quantile: Array) -> Array:
        """Return the places of quantiles."""
        from scipy.special import ndtri  # takes long to import

        low, high = self._ends
        placed = self.mean + self.deviation * ndtri(low + quantile * (high - low))
        return cast(Array, np.clip(placed, 0.0, 1.0))

    def quantile(self, unit: Array) -> Array:
        """Return the quantiles of places."""
        from scipy.special import ndtr

        low, high = self._ends
        share = (ndtr((unit - self.mean) / self.deviation) - low) / (high - low)
        return cast(Array, np.clip(share, 0.0, 1.0))

    @property
    def _ends(self) -> tuple[float, float]:
        from scipy.special import ndtr

        below, above = -self.mean / self.deviation, (1.0 - self.mean) / self.deviation
        return float(ndtr(below)), float(ndtr(above))


@dataclass(frozen=True)
class Weighted:
    """A distribution over cells of equal width."""

    weights: tuple[float, ...]

    def at_quantile(self, quantile: Array) -> Array:
        """Return the middle of the cell at each quantile."""
        index = np.searchsorted(self._edges[1:-1], quantile, side="right")
        return (index + 0.5) / len(self.weights)

    def quantile(self, unit: Array) -> Array:
        """Return the middle of the share of the cell at each place."""
        edges = self._edges
        last = len(self.weights) - 1
        index = np.clip((np.asarray(unit) * len(self.weights)).astype(int), 0, last)
        return cast(Array, (edges[index] + edges[index + 1]) / 2)

    @property
    def _edges(self) -> Array:
        sum_V = np.concatenate([[0.0], np.cumsum(self.weights)])
        edges: Array = sum_V / sum_V[-1]
        return edges


class Distribution(Protocol):
    """A distribution in the unit interval."""

    def at_quantile(self, quantile: Array) -> Array:
        """Return the places of quantiles."""

    def quantile(self, unit: Array) -> Array:
        """Return the quantiles of places."""


class Drawn(Protocol):
    """A domain, as far as draws look at it."""

    @property
    def distribution(self) -> Distribution | None:
        """How values are drawn; None: all alike."""

    def from_unit(self, unit: float) -> Value:
        """Return the value at a place in the unit interval."""


def at_quantile(domain: Drawn, quantile: Array | float) -> Array:
    """Return the places in the unit interval of a domain's values at quantiles."""
    at = np.asarray(quantile, dtype=float)
    return at if domain.distribution is None else domain.distribution.at_quantile(at)


def quantile(domain: Drawn, unit: float) -> float:
    """Return the quantile of a place in the unit interval."""
    distribution = domain.distribution
    return unit if distribution is None else float(distribution.quantile(np.asarray(unit)))


def draw(domain: Drawn, at: float) -> Value:
    """Return the value of a domain at a quantile, such as a number from `rng.random()`."""
    return domain.from_unit(at if domain.distribution is None else float(at_quantile(domain, at)))


def check_weights(weights: Sequence[object], values: int) -> tuple[float, ...]:
    """Return the weights of a choice, once they have been checked; an empty tuple: there are none.

    Raises:
        SpaceError: they are not one positive number for each value.
    """
    if weights and len(weights) != values:
        message = f"has {len(weights)} numbers for {values} values; give one for each"
        raise SpaceError(("weights",), message)
    for index, weight in enumerate(weights):
        if not is_number(weight) or weight <= 0:
            message = "give a number above 0; leave out a value that is never to be drawn"
            raise SpaceError(("weights", index), f"is {weight!r}; {message}")
    numbers = tuple(float(cast(float, weight)) for weight in weights)
    if numbers and not math.isfinite(sum(numbers)):
        raise SpaceError(("weights",), "have no finite sum; give smaller numbers")
    return numbers
