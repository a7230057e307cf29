"""The logarithm of the expected hypervolume improvement, exact for independent objectives.

The region below a reference point that no front point dominates is cut into disjoint boxes once;
within a box the improvement is a product over the objectives, so its expectation is a product of
differences of expected improvements. The logarithm keeps a gradient where improvement is unlikely.

Axes: F front points, K objectives, B boxes, V sides (intervals) of one objective, L levels (ends of
sides), M queries, D model columns. Losses are standardized; smaller is better.
Sources: Yang, Emmerich, Deutz & Back, Efficient computation of expected hypervolume improvement
using box decomposition algorithms (2019), eq. 14; Ament et al. (NeurIPS 2023), section 4.3, for the
logarithms. The cutting is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from searchers.gp.acquisition import log_h
from searchers.gp.kernels import Array, Index
from searchers.gp.model import Posterior

# Relative width of a side below which the difference of its ends is only rounding error.
NARROW = 1e-12


def undominated(front_FK: Array, reference_K: Array) -> tuple[Array, Array]:
    """Return lower and upper corners (both BK) of disjoint boxes; lower ones may be -inf.

    Each front point in turn removes from every box the region that it dominates, and the remainder
    of the box is split into at most K parts. In the order of the last objective most boxes are
    never met again.
    """
    lower_BK = np.full((1, len(reference_K)), -np.inf)
    upper_BK = reference_K[None].astype(np.float64)
    for point_K in front_FK[np.argsort(front_FK[:, -1], kind="stable")]:
        met_B = (upper_BK > point_K).all(axis=1)
        low_BK, high_BK = lower_BK[met_B], upper_BK[met_B]
        parts = [(lower_BK[~met_B], upper_BK[~met_B])]
        for axis in range(len(reference_K) - 1, -1, -1):
            below_B = low_BK[:, axis] < point_K[axis]
            part_high_BK = high_BK[below_B].copy()
            part_high_BK[:, axis] = point_K[axis]
            parts.append((low_BK[below_B], part_high_BK))
            low_BK = low_BK.copy()
            low_BK[below_B, axis] = point_K[axis]
        lower_BK = np.vstack([low for low, _ in parts])
        upper_BK = np.vstack([high for _, high in parts])
    return lower_BK, upper_BK


@dataclass(frozen=True)
class Sides:
    """The distinct intervals that the boxes have in one objective."""

    level_L: Array  # all finite ends of the intervals
    lower_V: Index  # index of the lower end among the levels; one past the last: -inf
    upper_V: Index
    side_B: Index  # the interval of each box

    @classmethod
    def of(cls, lower_B: Array, upper_B: Array) -> "Sides":
        level_L = np.unique(np.append(lower_B[np.isfinite(lower_B)], upper_B))
        ends, side_B = np.unique(np.stack([lower_B, upper_B]), axis=1, return_inverse=True)
        lower_V = np.searchsorted(level_L, ends[0])
        lower_V[~np.isfinite(ends[0])] = len(level_L)
        return cls(level_L, lower_V, np.searchsorted(level_L, ends[1]), side_B.ravel())

    def log_gain(self, mean_M: Array, deviation_M: Array) -> tuple[Array, Array, Array]:
        """Return log E[max(upper - max(lower, loss), 0)], its slopes in mean and deviation (MV)."""
        z_ML = (self.level_L - mean_M[:, None]) / deviation_M[:, None]
        value_ML, slope_ML = log_h(z_ML)
        # -inf, the last level, is below any loss: no improvement, whatever the slope.
        z_ML, slope_ML = _padded(z_ML, 0.0), _padded(slope_ML, 0.0)
        value_ML = _padded(value_ML, -np.inf)
        high_MV = value_ML[:, self.upper_V]
        share_MV = np.exp(np.minimum(value_ML[:, self.lower_V] - high_MV, 0.0))
        rest_MV = np.maximum(1.0 - share_MV, NARROW)
        up_MV = slope_ML[:, self.upper_V] / rest_MV
        down_MV = slope_ML[:, self.lower_V] * share_MV / rest_MV
        value_MV = np.log(deviation_M)[:, None] + high_MV + np.log(rest_MV)
        mean_slope_MV = -(up_MV - down_MV) / deviation_M[:, None]
        moved_MV = z_ML[:, self.upper_V] * up_MV - z_ML[:, self.lower_V] * down_MV
        return value_MV, mean_slope_MV, (1.0 - moved_MV) / deviation_M[:, None]


def _padded(value_ML: Array, last: float) -> Array:
    return np.pad(value_ML, ((0, 0), (0, 1)), constant_values=last)


@dataclass(frozen=True)
class LogExpectedHypervolumeImprovement:
    """log of the expected volume that a trial adds to the volume that the front dominates."""

    posteriors: tuple[Posterior, ...]  # one for each objective, over the same columns
    sides: tuple[Sides, ...]

    @classmethod
    def of(
        cls, posteriors: Sequence[Posterior], front_FK: Array, reference_K: Array
    ) -> "LogExpectedHypervolumeImprovement":
        """Build the boxes of a front; dominated points among it change nothing."""
        lower_BK, upper_BK = undominated(front_FK, reference_K)
        return cls(tuple(posteriors), tuple(map(Sides.of, lower_BK.T.copy(), upper_BK.T.copy())))

    def __call__(self, x_MD: Array) -> Array:
        value_MB = np.zeros(())
        for posterior, sides in zip(self.posteriors, self.sides, strict=True):
            mean_M, variance_M = posterior.predict(x_MD)
            gain_MV, _, _ = sides.log_gain(mean_M, np.sqrt(variance_M))
            value_MB = value_MB + gain_MV[:, sides.side_B]
        value_M: Array = logsumexp(value_MB, axis=1)
        return value_M

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        gains = [
            _Gain.of(posterior, sides, x_MD)
            for posterior, sides in zip(self.posteriors, self.sides, strict=True)
        ]
        value_MB = sum((gain.value_MB for gain in gains), np.zeros(()))
        value_M = logsumexp(value_MB, axis=1)
        weight_MB = np.exp(value_MB - value_M[:, None])
        gradient_MD = np.zeros(x_MD.shape)
        for gain in gains:
            gradient_MD += gain.pull(weight_MB)
        return value_M, gradient_MD


@dataclass(frozen=True)
class _Gain:
    """The log gain of one objective in every box, and its slopes."""

    value_MB: Array
    mean_slope_MB: Array
    deviation_slope_MB: Array
    mean_slope_MD: Array
    deviation_slope_MD: Array

    @classmethod
    def of(cls, posterior: Posterior, sides: Sides, x_MD: Array) -> "_Gain":
        mean_M, variance_M, mean_slope_MD, variance_slope_MD = posterior.predict_with_gradient(x_MD)
        deviation_M = np.sqrt(variance_M)
        value_MV, in_mean_MV, in_deviation_MV = sides.log_gain(mean_M, deviation_M)
        return cls(
            value_MV[:, sides.side_B],
            in_mean_MV[:, sides.side_B],
            in_deviation_MV[:, sides.side_B],
            mean_slope_MD,
            variance_slope_MD / (2.0 * deviation_M[:, None]),
        )

    def pull(self, weight_MB: Array) -> Array:
        """Return the gradient (MD) of the boxes' weighted sum."""
        mean_M = np.einsum("mb,mb->m", weight_MB, self.mean_slope_MB)
        deviation_M = np.einsum("mb,mb->m", weight_MB, self.deviation_slope_MB)
        pull_MD: Array = mean_M[:, None] * self.mean_slope_MD
        pull_MD += deviation_M[:, None] * self.deviation_slope_MD
        return pull_MD
