"""Gaussian-process regression: MAP hyperparameters, and the posterior that they give.

Axes: N observed rows, M queries, K appended rows, D model columns, P searched parameters (a
category has one column per value, all with one lengthscale), T = P + 2 hyperparameters in logs: the
lengthscales, the noise variance, the scale (prior variance of the function).
Losses are standardized (mean 0, variance 1) before they come here; smaller is better.
Source: Rasmussen & Williams (2006), Algorithm 2.1 and eq. 5.9.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

from searchers.gp.kernels import Array, Index, Kernel

# Keeps the factor positive definite where two rows almost coincide; far below any fitted noise.
JITTER = 1e-8
LENGTHSCALE_BOUNDS = (0.02, 100.0)
NOISE_BOUNDS = (1e-6, 1.0)
SCALE_BOUNDS = (math.exp(-3.0), math.exp(3.0))
FIRST_ITERATIONS, WARM_ITERATIONS = 60, 15
RESTARTS = 0.3  # the share of warm starts that get a random restart as well
# The gain in nats that a restart needs to replace the optimum found from the last fit.
RESTART_GAIN = 1e-3


@dataclass(frozen=True)
class Rows:
    """Observations as the model sees them."""

    x_ND: Array
    loss_N: Array
    parameter_D: Index  # the parameter of each column
    additive_weight: float  # the share of the parameters' own effects in the kernel

    def __len__(self) -> int:
        return len(self.loss_N)

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.parameter_D, self.additive_weight)

    @cached_property
    def pairs(self) -> "Pairs":
        """The pairs of rows and their distances, computed once for all steps of a fit."""
        first_S, second_S = np.tril_indices(len(self), -1)
        distances_PNN = self.kernel.distances(self.x_ND, self.x_ND)
        return Pairs(first_S, second_S, distances_PNN[:, first_S, second_S])

    def take(self, index: Index) -> "Rows":
        return replace(self, x_ND=self.x_ND[index], loss_N=self.loss_N[index])


@dataclass(frozen=True)
class Pairs:
    """The pairs of rows below the diagonal, S of them, and their unscaled squared distances."""

    first_S: Index
    second_S: Index
    distance_PS: Array


@dataclass(frozen=True)
class Hyperparameters:
    """The lengthscale of each parameter, the noise variance and the function's prior variance."""

    lengthscales: tuple[float, ...]
    noise: float
    scale: float

    def log_vector(self) -> Array:
        return np.log([*self.lengthscales, self.noise, self.scale])

    @classmethod
    def from_log_vector(cls, theta_T: Array) -> "Hyperparameters":
        *lengthscales, noise, scale = np.exp(theta_T).tolist()
        return cls(tuple(lengthscales), noise, scale)


@dataclass(frozen=True)
class Prior:
    """Independent normals over the log hyperparameters, and where the first search starts."""

    mean_T: Array
    deviation_T: Array
    start_T: Array


def dimension_scaled_prior(parameters: int) -> Prior:
    """Return a prior of lengthscales that grow with the square root of the dimension.

    Log-normal(sqrt 2 + log(P)/2, sqrt 3) with its mode taken in lengthscale space, which is the
    mean of the log less the variance 3: with the mode in log space, regret in 20 dimensions was 2
    to 16 times worse. Source: Hvarfner, Hellsten & Nardi, ICML 2024, section 5.
    """
    mode = math.sqrt(2.0) + 0.5 * math.log(parameters) - 3.0
    return _prior(parameters, mode, math.sqrt(3.0), start=mode + 0.5)


def short_prior(parameters: int) -> Prior:
    """Return a prior of lengthscales about 0.4 of a parameter's range, whatever the dimension."""
    return _prior(parameters, math.log(0.4), 0.8, start=math.log(0.4))


def _prior(parameters: int, location: float, spread: float, start: float) -> Prior:
    """Return a prior; the arguments hold for the log of every lengthscale.

    The noise is log-normal(-8, 2): the results soon say when there is more, while with (-5, 1.4) a
    model did not tell the best configurations apart (benchmarks/gp-experiments.md). Its search
    starts at -7, as what was measured did.
    """
    return Prior(
        np.array([location] * parameters + [-8.0, 0.0]),
        np.array([spread] * parameters + [2.0, 1.0]),
        np.array([start] * parameters + [-7.0, 0.0]),
    )


def with_noise(prior: Prior, location: float, spread: float) -> Prior:
    """Return the prior with another one, log-normal, of the noise."""
    mean_T, deviation_T, start_T = (
        each.copy() for each in (prior.mean_T, prior.deviation_T, prior.start_T)
    )
    mean_T[-2] = start_T[-2] = location
    deviation_T[-2] = spread
    return Prior(mean_T, deviation_T, start_T)


def with_more_noise(prior: Prior) -> Prior:
    """Return the prior for losses at several steps, seconds, and metrics with a limit."""
    return with_noise(prior, -5.0, math.sqrt(2.0))


def negative_log_posterior(theta_T: Array, rows: Rows, prior: Prior) -> tuple[float, Array]:
    """Return the objective of the MAP fit and its gradient, up to a constant (eq. 5.8 and 5.9).

    Where the kernel matrix has no Cholesky factor the value is 1e10 and the gradient 0, so that a
    line search steps back.
    """
    noise, scale = np.exp(theta_T[-2:]).tolist()
    pairs = rows.pairs
    r2_PS = pairs.distance_PS * np.exp(-2.0 * theta_T[:-2, None])
    k_S, joint_S, own_PS = rows.kernel.by_distance(r2_PS)
    total_NN = np.zeros((len(rows), len(rows)), order="F")
    total_NN[pairs.first_S, pairs.second_S] = scale * k_S
    total_NN[np.diag_indices_from(total_NN)] = scale + noise + JITTER
    chol_NN, failed = lapack.dpotrf(total_NN, lower=1)
    if failed:
        return 1e10, np.zeros_like(theta_T)
    alpha_N = lapack.dpotrs(chol_NN, rows.loss_N, lower=1)[0]
    inverse_NN = lapack.dpotri(chol_NN, lower=1)[0]
    # d(nll)/dK = (K^-1 - alpha alpha^T) / 2; a pair stands for both of its entries in K.
    gain_S = inverse_NN[pairs.first_S, pairs.second_S]
    gain_S -= alpha_N[pairs.first_S] * alpha_N[pairs.second_S]
    own_gain = 0.5 * float(np.trace(inverse_NN) - alpha_N @ alpha_N)  # of the diagonal
    spread_P = r2_PS @ (gain_S * joint_S)
    if own_PS is not None:
        own_PS *= r2_PS
        spread_P += own_PS @ gain_S
    shift_T = (theta_T - prior.mean_T) / prior.deviation_T
    value = 0.5 * rows.loss_N @ alpha_N + np.log(np.diag(chol_NN)).sum() + 0.5 * shift_T @ shift_T
    gradient_T = shift_T / prior.deviation_T
    gradient_T[:-2] -= 2.0 * scale * spread_P
    gradient_T[-2] += own_gain * noise
    gradient_T[-1] += (gain_S @ k_S + own_gain) * scale
    return float(value), gradient_T


def fit(rows: Rows, prior: Prior, last: Hyperparameters | None, rng: Generator) -> Hyperparameters:
    """Return MAP hyperparameters, starting from the last fit or, without one, the prior's start.

    A warm start is now and then joined by one random restart (see `RESTARTS`).
    """
    log_bounds = np.log(
        [LENGTHSCALE_BOUNDS] * (len(prior.mean_T) - 2) + [NOISE_BOUNDS, SCALE_BOUNDS]
    )
    starts = [prior.start_T if last is None else last.log_vector()]
    if last is not None and rng.random() < RESTARTS:
        jump_T = 0.7 * rng.standard_normal(len(prior.mean_T))
        jump_T[-1] = 0.0
        starts.append(prior.start_T + jump_T)
    results = [
        minimize(
            negative_log_posterior,
            np.clip(start_T, *log_bounds.T),
            args=(rows, prior),
            jac=True,
            method="L-BFGS-B",
            bounds=log_bounds,
            options={"maxiter": FIRST_ITERATIONS if last is None else WARM_ITERATIONS},
        )
        for start_T in starts
    ]
    best = results[0]
    if len(results) == 2 and results[1].fun < best.fun - RESTART_GAIN:
        best = results[1]
    return Hyperparameters.from_log_vector(np.clip(best.x, *log_bounds.T))


def safe_cholesky(matrix_NN: Array) -> Array:
    """Return the lower Cholesky factor, adding as little to the diagonal as makes one exist.

    Raises:
        LinAlgError: a hundredth of the mean diagonal was not enough, or an entry is not finite.
    """
    mean = float(np.mean(np.diag(matrix_NN)))
    for jitter in (0.0, 1e-8, 1e-6, 1e-4, 1e-2):
        lifted_NN = matrix_NN + jitter * mean * np.eye(len(matrix_NN))
        chol_NN, failed = lapack.dpotrf(lifted_NN, lower=1, clean=1)
        if not failed and np.isfinite(chol_NN[-1, -1]):
            return np.asarray(chol_NN)
    raise np.linalg.LinAlgError(
        f"the {len(matrix_NN)} x {len(matrix_NN)} kernel matrix has no Cholesky factor, "
        f"not even with {jitter:g} of its mean diagonal added"
    )


@dataclass(frozen=True)
class Posterior:
    """The process conditioned on N rows; it predicts at queries and can be given more rows."""

    kernel: Kernel
    hyperparameters: Hyperparameters
    inverse_D: Array  # 1 / lengthscale of each column
    scaled_ND: Array  # the rows, divided by their lengthscales
    chol_NN: Array  # lower factor of kernel + noise * I
    alpha_N: Array  # (kernel + noise * I)^-1 loss
    fitted_N: Array  # posterior mean at the rows themselves

    @classmethod
    def of(cls, rows: Rows, hyperparameters: Hyperparameters) -> "Posterior":
        inverse_D = 1.0 / np.array(hyperparameters.lengthscales)[rows.parameter_D]
        scaled_ND = rows.x_ND * inverse_D
        total_NN = hyperparameters.scale * rows.kernel(scaled_ND, scaled_ND)
        total_NN[np.diag_indices_from(total_NN)] = (
            hyperparameters.scale + hyperparameters.noise + JITTER
        )
        chol_NN = safe_cholesky(total_NN)
        alpha_N = lapack.dpotrs(chol_NN, rows.loss_N, lower=1)[0]
        fitted_N = rows.loss_N - (hyperparameters.noise + JITTER) * alpha_N
        return cls(rows.kernel, hyperparameters, inverse_D, scaled_ND, chol_NN, alpha_N, fitted_N)

    def solve(self, loss_N: Array) -> Array:
        """Return (kernel + noise * I)^-1 loss, in O(N^2)."""
        alpha_N: Array = lapack.dpotrs(self.chol_NN, loss_N, lower=1)[0]
        return alpha_N

    def with_losses(self, loss_N: Array) -> "Posterior":
        """Return the posterior of the same rows with other losses, in O(N^2)."""
        alpha_N = self.solve(loss_N)
        fitted_N = loss_N - (self.hyperparameters.noise + JITTER) * alpha_N
        return replace(self, alpha_N=alpha_N, fitted_N=fitted_N)

    def mean(self, x_MD: Array) -> Array:
        """Return the mean loss at each query, in O(N D) where the variance costs O(N^2)."""
        mean_M: Array = self.alpha_N @ self._covariance(x_MD * self.inverse_D)
        return mean_M

    def predict(self, x_MD: Array) -> tuple[Array, Array]:
        """Return the mean and the positive variance of the noise-free loss at each query."""
        k_NM = self._covariance(x_MD * self.inverse_D)
        v_NM = solve_triangular(self.chol_NN, k_NM, lower=True, check_finite=False)
        return k_NM.T @ self.alpha_N, self._variance(v_NM)

    def draw(self, x_MD: Array, draws: int, rng: Generator) -> Array:
        """Return the values of random functions of the posterior at the queries, (draws, M).

        In O(M^3): the values of one function depend on each other.
        """
        scaled_MD = x_MD * self.inverse_D
        k_NM = self._covariance(scaled_MD)
        v_NM = solve_triangular(self.chol_NN, k_NM, lower=True, check_finite=False)
        own_MM = self.hyperparameters.scale * self.kernel(scaled_MD, scaled_MD) - v_NM.T @ v_NM
        chol_MM = safe_cholesky(own_MM)
        drawn_MS = chol_MM @ rng.standard_normal((len(x_MD), draws))
        drawn_SM: Array = (k_NM.T @ self.alpha_N) + drawn_MS.T
        return drawn_SM

    def predict_with_gradient(self, x_MD: Array) -> tuple[Array, Array, Array, Array]:
        """Return mean_M, variance_M and their gradients with respect to the queries, both MD."""
        slopes = self.kernel.slopes(self.scaled_ND, x_MD * self.inverse_D)
        scale = self.hyperparameters.scale
        k_NM = scale * slopes.k_NM
        v_NM = solve_triangular(self.chol_NN, k_NM, lower=True, check_finite=False)
        weight_NM = solve_triangular(self.chol_NN, v_NM, lower=True, trans=1, check_finite=False)
        mean_pull_MD = slopes.pull(np.broadcast_to(self.alpha_N[:, None], k_NM.shape))
        return (
            k_NM.T @ self.alpha_N,
            self._variance(v_NM),
            scale * mean_pull_MD * self.inverse_D,
            -2.0 * scale * slopes.pull(weight_NM) * self.inverse_D,
        )

    def fantasize(self, x_KD: Array) -> "Posterior":
        """Return the posterior as if each new row came out at its own mean, in O(N^2 K).

        A row whose loss equals its prediction has weight 0, so every mean stays and only the
        variances shrink. Source: Ginsbourger, Le Riche & Carraro (2010), "Kriging believer".
        """
        scaled_KD = x_KD * self.inverse_D
        k_NK = self._covariance(scaled_KD)
        mean_K = k_NK.T @ self.alpha_N
        own_KK = self.hyperparameters.scale * self.kernel(scaled_KD, scaled_KD)
        own_KK[np.diag_indices_from(own_KK)] = (
            self.hyperparameters.scale + self.hyperparameters.noise + JITTER
        )
        return Posterior(
            self.kernel,
            self.hyperparameters,
            self.inverse_D,
            np.vstack([self.scaled_ND, scaled_KD]),
            append_to_cholesky(self.chol_NN, k_NK, own_KK),
            np.append(self.alpha_N, np.zeros(len(mean_K))),
            np.append(self.fitted_N, mean_K),
        )

    def _covariance(self, scaled_MD: Array) -> Array:
        return self.hyperparameters.scale * self.kernel(self.scaled_ND, scaled_MD)

    def _variance(self, v_NM: Array) -> Array:
        explained_M = np.einsum("nm,nm->m", v_NM, v_NM)
        # The variance at a repeated observation can round to a negative number.
        variance_M: Array = np.maximum(self.hyperparameters.scale - explained_M, 1e-12)
        return variance_M


def append_to_cholesky(chol_NN: Array, k_NK: Array, own_KK: Array) -> Array:
    """Return the lower factor of [[C C^T, k], [k^T, own]] from the factor C of its first block.

    O(N^2 K) where a new factorization is O((N + K)^3).
    """
    rows, added = k_NK.shape
    v_NK = solve_triangular(chol_NN, k_NK, lower=True, check_finite=False)
    joint = np.zeros((rows + added, rows + added))
    joint[:rows, :rows] = chol_NN
    joint[rows:, :rows] = v_NK.T
    joint[rows:, rows:] = safe_cholesky(own_KK - v_NK.T @ v_NK)
    return joint
