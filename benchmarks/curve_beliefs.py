"""Two models of a whole learning curve, given where each of some curves stands.

Both say that curves are draws of one Gaussian process over steps, and differ in what it is. Nothing
is known of configurations. That only good curves go far is no bias: what is missing depends on
what is there alone.

* `rungs`: a curve is a straight line, over the logarithm of the step, between its values at
  steps that lie a factor apart; these values have any mean and covariance, fitted by expectation
  and maximisation with a weak prior.
* `decay`: Swersky, Snoek & Adams, Freeze-Thaw Bayesian Optimization (2014), section 3.1: an
  asymptote, and what decays exponentially, with k(t, u) = b^a / (t + u + b)^a; the most likely of a
  grid, the scale estimated.

Axes: N curves, S steps (1, 2, ..., the last), K values of a curve at rungs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ITERATIONS = 8  # of a fit that goes on from the last one
RELATED = 0.8  # correlation of two rungs that stand beside each other, before there are curves
DOUBTS = 6.0  # curves that the prior of the covariance is worth
DRIFT = 0.5  # deviation of the mean's change from a rung to the next, before there are curves
NOISE = 0.01  # variance, and that in so many values
DOUBLINGS = 1.0  # of the step between two rungs
DECAYS = tuple(product((0.5, 1.0, 2.0), (0.5, 2.0, 8.0)))  # (a, b)
SIZES = (0.3, 1.0, 3.0, 10.0, 30.0)  # of what decays, as shares of the asymptotes' variance
NOISES = (1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class Curves:
    """Standardized losses of curves, and how many steps each has gone; 0 beyond."""

    loss_NS: Array
    steps_N: Index

    @property
    def is_there_NS(self) -> NDArray[np.bool_]:
        there_NS: NDArray[np.bool_] = np.arange(self.loss_NS.shape[1]) < self.steps_N[:, None]
        return there_NS


@dataclass(frozen=True)
class Belief:
    """What is thought of a curve before and after its first steps."""

    mean_S: Array
    covariance_SS: Array  # without the noise
    noise: float
    asymptote: float = 0.0  # what of the variance is the asymptotes', if there are any
    gains: Sequence[Array] = field(init=False)  # S x k after k steps
    variance_KS: Array = field(init=False)  # after k = 0, ..., S steps

    def __post_init__(self) -> None:
        count = len(self.mean_S)
        gains, variances = [np.zeros((count, 0))], [np.diag(self.covariance_SS)]
        chol_SS = np.linalg.cholesky(self.covariance_SS + self.noise * np.eye(count))
        root_SS = solve_triangular(chol_SS, self.covariance_SS, lower=True)
        for k in range(1, count + 1):  # the factor of the first k steps is the whole one's corner
            gain = solve_triangular(chol_SS[:k, :k], root_SS[:k], lower=True, trans=1).T
            gains.append(gain)
            variances.append(variances[0] - (root_SS[:k] ** 2).sum(axis=0))
        object.__setattr__(self, "gains", gains)
        object.__setattr__(self, "variance_KS", np.maximum(variances, 1e-12))

    def expected(self, curves: Curves) -> Array:
        """The mean of each curve at all steps, N x S, without the noise."""
        expected_NS = np.empty_like(curves.loss_NS)
        for k in np.unique(curves.steps_N).tolist():
            own_N = curves.steps_N == k
            off_NK = curves.loss_NS[own_N, :k] - self.mean_S[:k]
            expected_NS[own_N] = self.mean_S + off_NK @ self.gains[k].T
        return expected_NS


class Model(Protocol):
    """Learns what curves are like."""

    def fit(self, curves: Curves) -> Belief:
        """What curves are, from those that there are."""


@dataclass
class Rungs:
    """Curves by their values at rungs; a fit goes on from the last one."""

    steps: int

    def __post_init__(self) -> None:
        count = 1 + max(1, math.ceil(math.log2(self.steps) / DOUBLINGS))
        place_S = np.log(np.arange(1, self.steps + 1)) / math.log(self.steps) * (count - 1)
        self._basis_SK = np.maximum(0.0, 1.0 - np.abs(place_S[:, None] - np.arange(count)))
        apart_KK = np.abs(np.arange(count)[:, None] - np.arange(count))
        self._prior_KK = RELATED**apart_KK
        change_JK = np.diff(np.eye(count), axis=0) / DRIFT
        self._tie_KK = change_JK.T @ change_JK + 1e-3 * np.eye(count)
        self._mean_K, self._covariance_KK, self._noise = np.zeros(count), self._prior_KK, NOISE

    def fit(self, curves: Curves) -> Belief:
        """What curves are, from those that there are."""
        basis_SK = self._basis_SK
        told_NK = curves.loss_NS @ basis_SK  # what is not there is 0
        count = len(basis_SK)
        each_SKK = basis_SK[:, :, None] * basis_SK[:, None, :]
        known_SKK = np.concatenate([np.zeros((1, *each_SKK.shape[1:])), each_SKK.cumsum(axis=0)])
        squares, values = float((curves.loss_NS**2).sum()), int(curves.steps_N.sum())
        for _ in range(ITERATIONS):
            inverse_KK = np.linalg.inv(self._covariance_KK)
            left_SKK = np.linalg.inv(inverse_KK + known_SKK / self._noise)
            pull_NK = told_NK / self._noise + inverse_KK @ self._mean_K
            value_NK = np.einsum("nkj,nj->nk", left_SKK[curves.steps_N], pull_NK)
            weight_S = np.bincount(curves.steps_N, minlength=count + 1)
            left_KK = np.einsum("s,skj->kj", weight_S, left_SKK)
            trials = len(curves.steps_N)
            self._mean_K = np.linalg.solve(
                trials * inverse_KK + self._tie_KK, inverse_KK @ value_NK.sum(axis=0)
            )
            off_NK = value_NK - self._mean_K
            spread_KK = off_NK.T @ off_NK + left_KK + DOUBTS * self._prior_KK
            self._covariance_KK = spread_KK / (trials + DOUBTS)
            fitted = np.einsum("s,skj,skj->", weight_S, known_SKK, left_SKK)
            fitted += np.einsum("nk,nkj,nj->", value_NK, known_SKK[curves.steps_N], value_NK)
            misfit = squares - 2.0 * float((told_NK * value_NK).sum()) + float(fitted)
            self._noise = max((misfit + 2.0 * NOISE) / (values + 2.0), 1e-6)
        covariance_SS = basis_SK @ self._covariance_KK @ basis_SK.T
        return Belief(basis_SK @ self._mean_K, covariance_SS, self._noise)


@dataclass
class Decay:
    """An asymptote and what decays, by the most likely of a grid."""

    steps: int

    def fit(self, curves: Curves) -> Belief:
        """What curves are, from those that there are."""
        best, found = -math.inf, None
        is_there_NS = curves.is_there_NS
        values = int(curves.steps_N.sum())
        step_S = np.arange(1.0, self.steps + 1)
        sum_SS = step_S[:, None] + step_S
        for (power, shift), size, noise in product(DECAYS, SIZES, NOISES):
            share_SS = 1.0 + size * (shift / (sum_SS + shift)) ** power
            chol_SS = np.linalg.cholesky(share_SS + noise * np.eye(self.steps))
            inverse_SS = np.linalg.inv(chol_SS)
            one_S = inverse_SS.sum(axis=1)
            white_NS = np.where(is_there_NS, curves.loss_NS @ inverse_SS.T, 0.0)
            one_NS = np.where(is_there_NS, one_S, 0.0)
            mean = float((white_NS @ one_S).sum() / (1.0 / 4.0 + (one_NS**2).sum()))
            scale = float(((white_NS - mean * one_NS) ** 2).sum() + 4.0) / (values + 4.0)
            likely = -0.5 * (values + 4.0) * math.log(scale)
            likely -= float((is_there_NS * np.log(np.diag(chol_SS))).sum())
            if likely > best:
                best, found = likely, (mean, scale, share_SS, noise)
        if found is None:
            raise ValueError("decay: a loss is not finite; bound losses before")
        mean, scale, share_SS, noise = found
        return Belief(np.full(self.steps, mean), scale * share_SS, scale * noise, scale)


MODELS: Mapping[str, Callable[[int], Model]] = {"rungs": Rungs, "decay": Decay}
