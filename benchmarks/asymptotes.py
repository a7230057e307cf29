"""Swersky's whole model: the asymptotes of curves are a Gaussian process over configurations.

Curves are independent given their asymptotes, so that all is N x N. The lengthscale, one for all
parameters, is the most likely of a grid. The paper integrates over such values, and draws new
configurations where it likes them; here the searcher draws them, so a new one is any.

Axes: N curves, S steps, P parameters (in [0, 1]), D random draws of new configurations.
Source: Swersky, Snoek & Adams, Freeze-Thaw Bayesian Optimization (2014), section 3.2, eq. 15 to 21.
"""

from dataclasses import dataclass

import numpy as np
from curve_beliefs import Array, Belief, Curves, Index
from scipy.linalg import cho_solve, cholesky, solve_triangular

from searchers.gp.kernels import matern52, squared_distances

LENGTHS = (0.05, 0.1, 0.2, 0.4, 0.8)
DRAWS = 64


@dataclass(frozen=True)
class Asymptotes:
    """Of curves whose configurations are known.

    Attributes:
        known_K: how precisely k = 0, ..., S steps show the asymptote.
        share_K: of the asymptote in the last loss, after k steps.
        base_K: variance of the last loss after k steps, had one the asymptote.
        level: mean of all asymptotes.
        pulled_N: what the steps add to the last loss.
        mean_N, variance_N: of each asymptote, less the level.
        new: mean and variance of that of a new configuration.
    """

    level: float
    known_K: Array
    share_K: Array
    base_K: Array
    pulled_N: Array
    mean_N: Array
    variance_N: Array
    new: tuple[float, float]
    length: float

    @classmethod
    def of(
        cls, curves: Curves, belief: Belief, unit_NP: Array, length: float | None
    ) -> "Asymptotes":
        """With a lengthscale; None: the most likely of the grid."""
        steps, scale, level = len(belief.mean_S), belief.asymptote, float(belief.mean_S[0])
        decay_SS = belief.covariance_SS - scale
        chol_SS = cholesky(decay_SS + belief.noise * np.eye(steps), lower=True)
        one_S = solve_triangular(chol_SS, np.ones(steps), lower=True)
        root_S = solve_triangular(chol_SS, decay_SS[:, -1], lower=True)
        known_K, share_K = _summed(one_S**2), 1.0 - _summed(root_S * one_S)
        base_K = decay_SS[-1, -1] - _summed(root_S**2)
        off_NS = np.where(curves.is_there_NS, curves.loss_NS - level, 0.0)
        white_NS = solve_triangular(chol_SS, off_NS.T, lower=True).T * curves.is_there_NS
        told_N, known_N = white_NS @ one_S, known_K[curves.steps_N]
        lengths = LENGTHS if length is None else (length,)
        fits = [_Fit.of(scale, length, unit_NP, told_N, known_N) for length in lengths]
        best = max(fits, key=lambda fit: fit.likely)
        draw_DP = np.random.default_rng(0).random((DRAWS, unit_NP.shape[1]))
        mean_D, variance_D = best.predict(draw_DP)
        new = float(mean_D.mean()), float(variance_D.mean() + mean_D.var())
        mean_N, variance_N = best.predict(unit_NP)
        pulled_N = white_NS @ root_S
        return cls(level, known_K, share_K, base_K, pulled_N, mean_N, variance_N, new, best.length)

    def final(self, rows: Index, steps_M: Index, until_M: Index) -> tuple[Array, Array, Array]:
        """Mean and variance of the last loss of rows (-1: a new one), and that after more steps."""
        mean_M = np.where(rows < 0, self.new[0], self.mean_N[rows])
        variance_M = np.where(rows < 0, self.new[1], self.variance_N[rows])
        share_M = self.share_K[steps_M]
        final_M = self.level + np.where(rows < 0, 0.0, self.pulled_N[rows]) + share_M * mean_M
        more_M = self.known_K[until_M] - self.known_K[steps_M]
        later_M = 1.0 / (1.0 / np.maximum(variance_M, 1e-12) + more_M)
        return (
            final_M,
            np.maximum(self.base_K[steps_M] + share_M**2 * variance_M, 1e-12),
            np.maximum(self.base_K[until_M] + self.share_K[until_M] ** 2 * later_M, 1e-12),
        )


@dataclass(frozen=True)
class _Fit:
    """With one lengthscale."""

    scale: float
    length: float
    unit_NP: Array
    root_N: Array
    chol_NN: Array
    weight_N: Array
    likely: float

    @classmethod
    def of(
        cls, scale: float, length: float, unit_NP: Array, told_N: Array, known_N: Array
    ) -> "_Fit":
        root_N = np.sqrt(known_N)
        k_NN = scale * matern52(squared_distances(unit_NP, unit_NP) / length**2)
        chol_NN = cholesky(np.eye(len(root_N)) + root_N[:, None] * k_NN * root_N, lower=True)
        half_N = cho_solve((chol_NN, True), told_N / root_N)
        likely = -0.5 * float(told_N / root_N @ half_N) - float(np.log(np.diag(chol_NN)).sum())
        return cls(scale, length, unit_NP, root_N, chol_NN, root_N * half_N, likely)

    def predict(self, unit_MP: Array) -> tuple[Array, Array]:
        """Mean and variance of the asymptotes at configurations, less their level."""
        k_NM = self.scale * matern52(squared_distances(self.unit_NP, unit_MP) / self.length**2)
        v_NM = solve_triangular(self.chol_NN, self.root_N[:, None] * k_NM, lower=True)
        return k_NM.T @ self.weight_N, np.maximum(self.scale - (v_NM**2).sum(axis=0), 1e-12)


def _summed(value_S: Array) -> Array:
    """Over the first k = 0, ..., S steps."""
    return np.concatenate([[0.0], np.cumsum(value_S)])
