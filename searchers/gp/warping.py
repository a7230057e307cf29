"""Monotone maps from losses to outputs for a Gaussian process, and back.

Axes: N observed losses, M values. Both maps keep the order of losses; outputs are standardized.
Sources: log1p above the median is ours (measured against ranks, logs and plain standardizing); Yeo
& Johnson, Biometrika 87 (2000), eq. 2.1, its power by maximum likelihood.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from searchers.gp.kernels import Array

MAX_LOSS = 1e100  # squares of larger losses would overflow
DECADES = 300.0  # ratio of the median to the lowest loss, from which logarithms are tried too
LEAST = np.finfo(np.float64).tiny  # of the losses that have a logarithm
OUTLIER = 100.0  # robust scales from the median, beyond which losses are clipped


class Warp(Protocol):
    def forward(self, loss_M: Array) -> Array: ...
    def backward(self, output_M: Array) -> Array: ...


@dataclass(frozen=True)
class TailCompression:
    """Affine below the median, log(1 + u) above it: bad losses keep their order, not their size."""

    centre: float
    scale: float

    @classmethod
    def fit(cls, loss_N: Array) -> "TailCompression":
        return cls(*_robust_location_and_scale(loss_N))

    def forward(self, loss_M: Array) -> Array:
        u_M = (loss_M - self.centre) / self.scale
        return np.where(u_M > 0.0, np.log1p(np.maximum(u_M, 0.0)), u_M)

    def backward(self, output_M: Array) -> Array:
        high_M = np.expm1(np.clip(output_M, 0.0, 200.0))
        return self.centre + self.scale * np.where(output_M > 0.0, high_M, output_M)


@dataclass(frozen=True)
class YeoJohnson:
    """The power transform that makes the losses most normal."""

    centre: float
    scale: float
    power: float

    @classmethod
    def fit(cls, loss_N: Array) -> "YeoJohnson":
        centre, span = float(np.median(loss_N)), float(np.ptp(loss_N)) or 1.0
        spread = span * float(((loss_N - centre) / span).std())  # squares of 1e-300 would vanish
        if spread == 0.0:
            return cls(centre, 1.0, 1.0)
        from scipy.stats import yeojohnson_normmax  # half a second, which few commands need

        # The search for the likeliest power tries powers that overflow; only its result counts.
        with np.errstate(all="ignore"):
            power = float(yeojohnson_normmax((loss_N - centre) / spread))
        return cls(centre, spread, power if math.isfinite(power) else 1.0)

    def forward(self, loss_M: Array) -> Array:
        from scipy.stats import yeojohnson

        output_M: Array = yeojohnson((loss_M - self.centre) / self.scale, lmbda=self.power)
        return output_M

    def backward(self, output_M: Array) -> Array:
        high_M = _inverse_power(np.maximum(output_M, 0.0), self.power)
        low_M = -_inverse_power(np.maximum(-output_M, 0.0), 2.0 - self.power)
        return self.centre + self.scale * np.where(output_M >= 0.0, high_M, low_M)


@dataclass(frozen=True)
class Standardized:
    """A warp of losses between two bounds, scaled to outputs of mean 0 and variance 1."""

    warp: Warp
    floor: float
    ceiling: float
    mean: float
    deviation: float
    in_logarithms: bool = False

    def forward(self, loss_M: Array) -> Array:
        if self.in_logarithms:
            loss_M = _logarithms(loss_M)
        output_M = self.warp.forward(np.clip(loss_M, self.floor, self.ceiling))
        return (output_M - self.mean) / self.deviation

    def backward(self, output_M: Array) -> Array:
        """Return losses in the user's units, for outputs of any size."""
        loss_M = self.warp.backward(self.mean + self.deviation * output_M)
        return np.exp(np.minimum(loss_M, math.log(MAX_LOSS))) if self.in_logarithms else loss_M


def spans_decades(loss_N: Array) -> bool:
    """Return whether most losses are so far above the lowest that those near it look alike."""
    loss_N = np.minimum(loss_N, MAX_LOSS)
    lowest = float(loss_N.min())
    return lowest > 0.0 and float(np.median(loss_N)) > DECADES * lowest


def _logarithms(loss_N: Array) -> Array:
    """Return logarithms, of losses that are 0 or less too: an earlier sweep may have some."""
    logarithm_N: Array = np.log(np.maximum(loss_N, LEAST))
    return logarithm_N


def standardized(
    fit: Callable[[Array], Warp],
    loss_N: Array,
    typical_N: Array | None = None,
    in_logarithms: bool = False,
) -> Standardized:
    """Fit a warp to finite losses and standardize its outputs; constant losses map to 0.

    Args:
        typical_N: the losses that the warp should tell apart, if not all.
        in_logarithms: whether it is a warp of their logarithms.
    """
    if in_logarithms:
        typical_log_N = None if typical_N is None else _logarithms(typical_N)
        return replace(standardized(fit, _logarithms(loss_N), typical_log_N), in_logarithms=True)
    typical_N = np.clip(loss_N if typical_N is None else typical_N, -MAX_LOSS, MAX_LOSS)
    median, scale = _robust_location_and_scale(typical_N)
    floor = max(median - OUTLIER * scale, -MAX_LOSS)
    ceiling = min(median + OUTLIER * scale, MAX_LOSS)
    warp = fit(np.clip(typical_N, floor, ceiling))
    output_N = warp.forward(np.clip(loss_N, floor, ceiling))
    deviation = float(output_N.std())
    return Standardized(
        warp, floor, ceiling, float(output_N.mean()), deviation if deviation > 1e-12 else 1.0
    )


def _robust_location_and_scale(loss_N: Array) -> tuple[float, float]:
    """Return the median, and the spread below it: half the range or the lower quartile.

    Losses above the median are ignored, so divergent trials cannot flatten the good ones.
    """
    lowest, quartile, median = np.quantile(loss_N, [0.0, 0.25, 0.5]).tolist()
    scale = max(0.5 * (median - lowest), median - quartile)
    if scale <= 1e-12 * max(abs(median), abs(lowest)):
        scale = float(np.ptp(loss_N)) or 1.0
    return median, scale


def _inverse_power(output_M: Array, power: float) -> Array:
    """Return x >= 0 with ((x + 1)^power - 1) / power = output.

    Powers below 0 end at -1 / power.
    """
    if abs(power) < 1e-8:
        return np.expm1(np.minimum(output_M, 200.0))
    base_M = np.maximum(power * output_M + 1.0, 1e-12)
    return np.expm1(np.minimum(np.log(base_M) / power, 200.0))
