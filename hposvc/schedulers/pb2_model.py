"""A time-varying Gaussian process for the gains of training, and its upper confidence bound.

    k((x, t), (z, u)) = scale exp(-|x - z|^2 / (2 length^2)) (1 - drift)^(|t - u| / 2)

with noise at each row. Length, drift and noise are the most probable of a grid, with the scale
integrated out, so that a fit needs no starting point and no luck, and has a known cost.

Axes: N rows, M queries, K pending rows, D columns (in [0, 1]), G pairs of length and drift in the
grid. Times count intervals. Gains are standardized (mean 0, variance 1) by the caller.
Sources: Parker-Holder, Nguyen & Roberts, Provably Efficient Online Hyperparameter Optimization
with Population-Based Bandits (NeurIPS 2020), §3 and §4; Bogunovic, Scarlett & Cevher,
Time-Varying Gaussian Process Bandit Optimization (AISTATS 2016), for the kernel.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from searchers.gp.kernels import squared_distances

Array = NDArray[np.float64]

LENGTHS = (0.15, 0.3, 0.6, 1.2)
DRIFTS = (0.0, 0.05, 0.2, 0.5)
NOISES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)  # variances, as shares of the scale
# Log-normal priors, which decide while there are few rows: location and spread.
LENGTH_PRIOR = (math.log(0.4), 0.8)
NOISE_PRIOR = (math.log(0.1), 1.5)
SCALE_WEIGHT = 4.0  # number of rows that the prior of a scale of 1 is worth
# The bound's beta is c1 log(c2 N), as in the authors' code, but not below MIN_BETA: with few rows
# the formula is negative.
C1, C2, MIN_BETA = 0.2, 0.4, 0.2


@dataclass(frozen=True)
class Rows:
    """Points of the model: the values that training used or will use, and when."""

    x_ND: Array
    time_N: Array

    def __len__(self) -> int:
        return len(self.time_N)

    def joined(self, other: "Rows") -> "Rows":
        return Rows(np.vstack([self.x_ND, other.x_ND]), np.concatenate([self.time_N, other.time_N]))


@dataclass(frozen=True)
class DriftingKernel:
    """The hyperparameters of the kernel; `noise` is a share of `scale`."""

    length: float
    drift: float
    noise: float
    scale: float

    def correlation(self, rows: Rows, others: Rows) -> Array:
        """Return the correlation of each row with each of the others, N x M, without noise."""
        r2_NM = squared_distances(rows.x_ND, others.x_ND)
        apart_NM = np.abs(rows.time_N[:, None] - others.time_N)
        return _correlation(r2_NM, apart_NM, self.length, self.drift)

    def noisy_correlation(self, rows: Rows) -> Array:
        """Return the correlation of the rows among themselves, N x N, with noise."""
        return self.correlation(rows, rows) + self.noise * np.eye(len(rows))


@dataclass(frozen=True)
class Bandit:
    """A fitted process over known gains, and the rows whose gains are pending."""

    model: DriftingKernel
    rows: Rows
    gain_N: Array
    all_rows: Rows  # the rows with known gains, then the pending rows

    @classmethod
    def of(cls, rows: Rows, gain_N: Array, pending: Rows) -> "Bandit":
        """Fit a bandit to the rows; without rows the bandit is the prior."""
        return cls(fit(rows, gain_N), rows, gain_N, rows.joined(pending))

    def predict(self, queries: Rows) -> tuple[Array, Array]:
        """Return the mean and standard deviation of the gain at each query, both M, without noise.

        The mean uses the rows with known gains. The deviation uses the pending rows too, since it
        does not depend on gains (the paper's §4; Desautels, Krause & Burdick 2014).
        """
        rows_NM = self.model.correlation(self.rows, queries)
        mean_M = rows_NM.T @ np.linalg.solve(self.model.noisy_correlation(self.rows), self.gain_N)
        all_M = self.model.correlation(self.all_rows, queries)
        explained_M = (
            all_M * np.linalg.solve(self.model.noisy_correlation(self.all_rows), all_M)
        ).sum(axis=0)
        # A query that repeats a row can round to a negative variance.
        return mean_M, np.sqrt(self.model.scale * np.maximum(1.0 - explained_M, 0.0))

    def bound(self, queries: Rows) -> Array:
        """Return the upper confidence bound of the gain at each query, M."""
        mean_M, deviation_M = self.predict(queries)
        beta = max(MIN_BETA, C1 * math.log(C2 * max(len(self.rows), 1)))
        upper_M: Array = mean_M + math.sqrt(beta) * deviation_M
        return upper_M


def fit(rows: Rows, gain_N: Array) -> DriftingKernel:
    """Return the most probable hyperparameters of the grid, in O(G N^3)."""
    pairs = list(product(LENGTHS, DRIFTS))
    r2_NN = squared_distances(rows.x_ND, rows.x_ND)
    apart_NN = np.abs(rows.time_N[:, None] - rows.time_N)
    correlation_GNN = np.stack([_correlation(r2_NN, apart_NN, *pair) for pair in pairs])
    # One decomposition serves every noise, which only adds to the eigenvalues.
    value_GN, vector_GNN = np.linalg.eigh(correlation_GNN)
    value_GN = np.maximum(value_GN, 0.0)
    along_GN = np.einsum("gnk,n->gk", vector_GNN, gain_N) ** 2
    best, highest = None, -math.inf
    for noise in NOISES:
        total_GN = value_GN + noise
        misfit_G = (along_GN / total_GN).sum(axis=1) + SCALE_WEIGHT
        count = len(rows) + SCALE_WEIGHT
        likely_G = -0.5 * (count * np.log(misfit_G) + np.log(total_GN).sum(axis=1))
        likely_G += [_log_prior(length, LENGTH_PRIOR) for length, _ in pairs]
        likely_G += _log_prior(noise, NOISE_PRIOR)
        index = int(np.argmax(likely_G))
        if likely_G[index] > highest:
            best = DriftingKernel(*pairs[index], noise, float(misfit_G[index] / count))
            highest = float(likely_G[index])
    if best is None:
        raise ValueError("fit: a gain, value or time is not finite; drop such rows before")
    return best


def _correlation(r2_NM: Array, apart_NM: Array, length: float, drift: float) -> Array:
    same_NM: Array = np.exp(-0.5 * r2_NM / length**2) * (1.0 - drift) ** (0.5 * apart_NM)
    return same_NM


def _log_prior(value: float, belief: tuple[float, float]) -> float:
    location, spread = belief
    return -0.5 * ((math.log(value) - location) / spread) ** 2
