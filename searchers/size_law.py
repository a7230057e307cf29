"""How the best configuration moves while a model grows: a law with its uncertainty.

Near its optimum m(s) a loss at size s is taken to be

    c(s) + (x - m(s))' H (x - m(s)) / 2 + g(x, s) + noise

with one H for all sizes, an own level c(s) of each, and m(s) linear in the logarithms of the size:
a power law for a learning rate, which lies on a logarithmic scale. Written out this is linear in
its coefficients (products of x, x itself, x times log s), which have wide normal priors. The rest,
g, is a Gaussian process with Matern kernels of x and of log s: what the law does not explain, such
as an optimum that turns. Noise grows with the distance from the best of a size, where no parabola
holds. Noise, the process's size and length have a grid of values, each weighted by its evidence, so
that draws of the loss at a size where nothing was tried are about as wide as they should be.

Axes: N trials, M configurations of one size, P numbers of a configuration in units of their ranges,
D columns (those, and the values of choices), Z logarithms of a size, B coefficients, C cells of the
grid, S draws.
Sources: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), sections 2.2 and 2.7;
that optima follow power laws of size and data: Kaplan et al., Scaling Laws for Neural Language
Models (2020), section 5; that losses are parabolas of log(rate) and log(batch) near them: Li et
al., Predictable Scale: Part I, Step Law (2025), section 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from searchers.gp.kernels import matern52, squared_distances

Array = NDArray[np.float64]
Index = NDArray[np.intp]

KEPT = 0.5  # of the trials of a size, the best: far from the optimum there is no parabola
FEWEST = 40  # trials of a size that are kept at least, if there are as many
MOST = 600  # rows in all
# In spreads of the losses, deviations of the coefficients' priors, and the mean of those of x_i
# times x_i: a parabola rather opens upwards.
CURVATURE, SLOPE, MOVE, LEVEL = 30.0, 30.0, 10.0, 10.0
CONVEX = 20.0
SPREAD = 0.8  # quantile of how far trials lie above the best of their size
# A quantile of these distances; how many of it the largest one counts, and the largest between the
# levels of sizes, so that what diverged is bad, and no more.
NEARER, FAR, APART = 0.3, 100.0, 1000.0
# In deviations of the losses that are kept: the noise, and its growth with the distance from the
# best; the process's deviation for all sizes together, and for each; its length, in ranges of x.
NOISES, GROWTHS = (0.03, 0.1, 0.3), (0.1, 0.3)
COMMON, OWN, LENGTHS = (0.3, 1.0), (0.2, 0.6, 1.2), (0.15, 0.4)
ALONE = 0.7  # of the variance of a size's own process, the part that no other size shares
DOUBLINGS = 2.0  # the length of the other part
JITTER, SAME = 1e-9, 1e-9
ANY_LEVEL = 1e4  # of the variance at a size: that of a level of which nothing is known
LIGHT = 0.02  # of the weight of all cells; lighter ones are left out


@dataclass(frozen=True)
class LawTrials:
    """The trials of several sizes that have a loss."""

    x_ND: Array  # numbers first, in units of their ranges
    numbers: int  # P
    size_NZ: Array  # log2
    loss_N: Array


@dataclass(frozen=True)
class Setting:
    """Values of what the evidence weighs."""

    noise: float
    growth: float
    common: float
    own: float
    length: float

    def variance(self, above_N: Array) -> Array:
        """Return the variance of the noise, by the distance from the best of a size."""
        variance_N: Array = self.noise**2 + (self.growth * above_N) ** 2
        return variance_N


@dataclass(frozen=True)
class SizeLaw:
    """The law fitted to trials."""

    kept: LawTrials
    center: float
    scale: float  # of the losses about the center, in which all below is
    cells: tuple["_Cell", ...]
    weight_C: Array

    @classmethod
    def of(cls, trials: LawTrials) -> "SizeLaw":
        """Fit the law; there must be a trial."""
        kept, above_N = _near_best(trials)
        better_N = above_N[above_N <= np.median(above_N)]
        scale = max(2.0 * float(np.std(better_N)), 1e-12)
        spread = max(float(np.quantile(above_N, SPREAD)) / scale, 1.0)
        basis = _Basis.of(kept, spread)
        center = float(np.median(kept.loss_N))
        target_N = (kept.loss_N - center) / scale - basis.mean(kept.x_ND[:, : kept.numbers])
        cells = [
            _Cell.of(kept, basis, target_N, above_N / scale, Setting(*setting))
            for setting in product(NOISES, GROWTHS, COMMON, OWN, LENGTHS)
        ]
        evidence_C = np.array([cell.evidence for cell in cells])
        weight_C = np.exp(evidence_C - evidence_C.max())
        weight_C /= weight_C.sum()
        least = min(LIGHT, weight_C.max() / 2)  # a few trials hardly tell the cells apart
        heavy = [index for index, weight in enumerate(weight_C) if weight > least]
        kept_C = weight_C[heavy] / weight_C[heavy].sum()
        return cls(kept, center, scale, tuple(cells[index] for index in heavy), kept_C)

    def mean(self, x_MD: Array, size_Z: Array) -> Array:
        """Return the expected loss of configurations at a size, or one each, without noise."""
        mean_CM = np.array([cell.mean(x_MD, size_Z) for cell in self.cells])
        mean_M: Array = self.center + self.scale * self.weight_C @ mean_CM
        return mean_M

    def chance(self, x_MD: Array, size_Z: Array, loss_M: Array, above_M: Array) -> float:
        """Return the probability that trainings at a size differ more from the law than these.

        Their common level is left out: only the differences between configurations count.

        Args:
            above_M: by how much each lies above the best of its size, with which its noise grows.
        """
        from scipy.stats import chi2

        chance_C = np.empty(len(self.cells))
        for index, cell in enumerate(self.cells):
            mean_M, covariance_MM = cell.predict(x_MD, size_Z)
            covariance_MM[np.diag_indices(len(mean_M))] += cell.setting.variance(
                above_M / self.scale
            )
            covariance_MM += ANY_LEVEL * np.diag(covariance_MM).mean()
            off_M = (loss_M - self.center) / self.scale - mean_M
            distance = float(off_M @ np.linalg.solve(covariance_MM, off_M))
            chance_C[index] = chi2.sf(distance, len(off_M) - 1)
        return float(self.weight_C @ chance_C)

    def draws(
        self, x_MD: Array, size_Z: Array, count: int, rng: Generator, noisy: bool = False
    ) -> Array:
        """Return losses (S x M) that the law holds possible.

        Args:
            size_Z: the size of all configurations; or of each (M x Z).
            noisy: as single trainings would measure them.
        """
        counts_C = rng.multinomial(count, self.weight_C)
        drawn = []
        for cell, own in zip(self.cells, counts_C.tolist(), strict=True):
            if own:
                mean_M, covariance_MM = cell.predict(x_MD, size_Z)
                root_MM = _root(covariance_MM)
                loss_SM = mean_M + rng.standard_normal((own, len(mean_M))) @ root_MM.T
                if noisy:
                    loss_SM += cell.setting.noise * rng.standard_normal(loss_SM.shape)
                drawn.append(loss_SM)
        return self.center + self.scale * np.vstack(drawn)


@dataclass(frozen=True)
class _Basis:
    """The columns of which the law is a linear function, and their priors."""

    middle_P: Array
    center_Z: Array
    size_KZ: Array  # the sizes that have a level of their own
    spread: float

    @classmethod
    def of(cls, trials: LawTrials, spread: float) -> "_Basis":
        x_NP = trials.x_ND[:, : trials.numbers]
        size_KZ = np.unique(trials.size_NZ, axis=0)
        return cls(x_NP.mean(axis=0), trials.size_NZ.mean(axis=0), size_KZ, spread)

    @cached_property
    def variance_B(self) -> Array:
        numbers, sizes, levels = len(self.middle_P), len(self.center_Z), len(self.size_KZ)
        counts = (numbers * (numbers + 1) // 2, numbers, numbers * sizes, levels, sizes, 1)
        deviations = (CURVATURE, SLOPE, MOVE, LEVEL, LEVEL, 10 * LEVEL)
        return np.repeat(np.square(self.spread * np.array(deviations)), counts)

    def mean(self, x_NP: Array) -> Array:
        """Return the mean of the prior: a parabola, whose place the other coefficients move."""
        mean_N: Array = self.spread * CONVEX / 2 * np.square(x_NP - self.middle_P).sum(axis=1)
        return mean_N

    def columns(self, x_NP: Array, size_NZ: Array) -> Array:
        x_NP, size_NZ = x_NP - self.middle_P, size_NZ - self.center_Z
        rows, others = np.triu_indices(x_NP.shape[1])
        product_N = x_NP[:, rows] * x_NP[:, others] * np.where(rows == others, 0.5, 1.0)
        moved_N = (x_NP[:, :, None] * size_NZ[:, None, :]).reshape(len(x_NP), -1)
        level_NK = (size_NZ[:, None, :] == (self.size_KZ - self.center_Z)[None]).all(axis=2)
        return np.hstack([product_N, x_NP, moved_N, level_NK, size_NZ, np.ones((len(x_NP), 1))])


@dataclass(frozen=True)
class _Cell:
    """The law with one value of the noise, and of the process's size and length."""

    trials: LawTrials
    basis: _Basis
    setting: Setting
    lower_NN: Array
    weight_N: Array
    evidence: float

    @classmethod
    def of(
        cls, trials: LawTrials, basis: _Basis, target_N: Array, above_N: Array, setting: Setting
    ) -> "_Cell":
        from scipy.linalg import cho_solve

        cell = cls(trials, basis, setting, np.empty((0, 0)), np.empty(0), 0.0)
        noise_N = setting.variance(above_N)
        covariance_NN = cell._covariance(trials.x_ND, trials.size_NZ)
        covariance_NN[np.diag_indices(len(target_N))] += noise_N + JITTER
        lower_NN = cast(Array, np.linalg.cholesky(covariance_NN))
        weight_N = cho_solve((lower_NN, True), target_N)
        evidence = -0.5 * float(target_N @ weight_N) - float(np.log(np.diag(lower_NN)).sum())
        return cls(trials, basis, setting, lower_NN, weight_N, evidence)

    def mean(self, x_MD: Array, size_Z: Array) -> Array:
        """Return the mean (M) at configurations of one size, or of one each (M x Z)."""
        size_MZ = np.broadcast_to(size_Z, (len(x_MD), self.trials.size_NZ.shape[1]))
        cross_NM = self._covariance(x_MD, size_MZ, self.trials)
        mean_M: Array = cross_NM.T @ self.weight_N
        return mean_M + self.basis.mean(x_MD[:, : self.trials.numbers])

    def predict(self, x_MD: Array, size_Z: Array) -> tuple[Array, Array]:
        """Return mean (M) and covariance (M x M) at configurations of one size, or of one each."""
        from scipy.linalg import solve_triangular

        size_MZ = np.broadcast_to(size_Z, (len(x_MD), self.trials.size_NZ.shape[1]))
        cross_NM = self._covariance(x_MD, size_MZ, self.trials)
        solved_NM = solve_triangular(self.lower_NN, cross_NM, lower=True)
        covariance_MM = self._covariance(x_MD, size_MZ) - solved_NM.T @ solved_NM
        mean_M = cross_NM.T @ self.weight_N + self.basis.mean(x_MD[:, : self.trials.numbers])
        return mean_M, covariance_MM

    def _covariance(self, x_MD: Array, size_MZ: Array, other: LawTrials | None = None) -> Array:
        """Return the prior covariance of points with each other, or of trials (N) with them (M)."""
        x_ND, size_NZ = (x_MD, size_MZ) if other is None else (other.x_ND, other.size_NZ)
        numbers = self.trials.numbers
        column_MB = self.basis.columns(x_MD[:, :numbers], size_MZ)
        column_NB = self.basis.columns(x_ND[:, :numbers], size_NZ)
        law_NM = (column_NB * self.basis.variance_B) @ column_MB.T
        length, apart_NM = self.setting.length, squared_distances(size_NZ, size_MZ)
        near_NM = matern52(squared_distances(x_ND / length, x_MD / length))
        alike_NM = (1 - ALONE) * matern52(apart_NM / DOUBLINGS**2) + ALONE * (apart_NM < SAME)
        return law_NM + near_NM * (self.setting.common**2 + self.setting.own**2 * alike_NM)


def _near_best(trials: LawTrials) -> tuple[LawTrials, Array]:
    """Return the better trials of each size, and how far their losses lie above the best there."""
    rows: list[Index] = []
    above: list[Array] = []
    best: list[float] = []
    for size_Z in np.unique(trials.size_NZ, axis=0):
        own = np.flatnonzero((trials.size_NZ == size_Z).all(axis=1))
        order = own[np.argsort(trials.loss_N[own], kind="stable")]
        rows.append(order[: max(FEWEST, round(KEPT * len(own)))])
        best.append(float(trials.loss_N[order[0]]))
        above.append(trials.loss_N[rows[-1]] - best[-1])
    index_N, above_N = np.concatenate(rows), np.concatenate(above)
    best_N = np.repeat(best, [len(own) for own in rows])
    if (above_N > 0).any():
        unit, level = float(np.quantile(above_N[above_N > 0], NEARER)), float(np.median(best))
        above_N = np.minimum(above_N, FAR * unit)
        best_N = best_N.clip(level - APART * unit, level + APART * unit)
    if len(index_N) > MOST:
        nearest = np.argsort(above_N, kind="stable")[:MOST]
        index_N, above_N, best_N = index_N[nearest], above_N[nearest], best_N[nearest]
    kept = LawTrials(
        trials.x_ND[index_N], trials.numbers, trials.size_NZ[index_N], best_N + above_N
    )
    return kept, above_N


def _root(covariance_MM: Array) -> Array:
    """Return a root of a covariance that rounding may have made a little negative."""
    value_M, vector_MM = np.linalg.eigh(covariance_MM)
    root_MM: Array = vector_MM * np.sqrt(np.maximum(value_M, 0.0))
    return root_MM


def regret(loss_SM: Array, chosen: int) -> Array:
    """Return by how much one configuration is worse than the best of all, in each draw (S)."""
    worse_S: Array = loss_SM[:, chosen] - loss_SM.min(axis=1)
    return worse_S


def expected_gain(loss_SM: Array, tried: Sequence[int]) -> Array:
    """Return by how much each configuration is expected to beat the best tried (M)."""
    best_S = loss_SM[:, list(tried)].min(axis=1)
    gain_M: Array = np.maximum(best_S[:, None] - loss_SM, 0.0).mean(axis=0)
    return gain_M
