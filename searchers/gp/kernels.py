"""The kernel: a Matern-5/2 over all parameters, and a share of each parameter's own effect.

    k(x, z) = (1 - share) matern52(sum_p r2_p) + share / P sum_p matern52(P r2_p)

with r2_p the squared distance of x and z in parameter p. The second part assumes that a loss is
partly a sum of functions of one parameter each, so that a trial informs about all that share one
value with it; it is for choices without an order. With share 0 no array has an axis for parameters.

Axes: N and M points, D model columns, P parameters (a category has one column per value). Points
arrive divided by their lengthscales, so that the kernel has none of its own.
Sources: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), eq. 4.17; Duvenaud,
Nickisch & Rasmussen, Additive Gaussian Processes (2011), section 2, of which this is the first
order. A smoother own part, 1 / (1 + r2 / 2), did worse on functions with many minima.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def squared_distances(x_ND: Array, z_MD: Array) -> Array:
    """Return the squared distance of every row of x to every row of z, never negative."""
    x2_N = np.einsum("nd,nd->n", x_ND, x_ND)
    z2_M = np.einsum("md,md->m", z_MD, z_MD)
    r2_NM: Array = x_ND @ (-2.0 * z_MD.T)
    r2_NM += x2_N[:, None]
    r2_NM += z2_M
    return np.maximum(r2_NM, 0.0, out=r2_NM)


def matern52(r2_NM: Array) -> Array:
    """Return the correlation at squared distances of any shape."""
    s_NM = np.sqrt(5.0 * r2_NM)
    decay_NM = np.exp(-s_NM)
    k_NM: Array = s_NM * s_NM
    k_NM /= 3.0
    k_NM += s_NM
    k_NM += 1.0
    k_NM *= decay_NM
    return k_NM


def matern52_with_slope(r2_NM: Array) -> tuple[Array, Array]:
    """Return the correlation and its derivative by the squared distance (finite at 0)."""
    s_NM = np.sqrt(5.0 * r2_NM)
    decay_NM = np.exp(-s_NM)
    k_NM = s_NM * s_NM
    k_NM *= decay_NM
    k_NM /= 3.0
    slope_NM: Array = s_NM
    slope_NM += 1.0
    slope_NM *= decay_NM
    k_NM += slope_NM
    slope_NM *= -5.0 / 6.0
    return k_NM, slope_NM


def weighted_pull(weight_NM: Array, x_ND: Array, z_MD: Array) -> Array:
    """Return the gradient of sum_i weight_ij r2(x_i, z_j) with respect to each query z_j."""
    pull_MD: Array = 2.0 * (z_MD * weight_NM.sum(axis=0)[:, None] - weight_NM.T @ x_ND)
    return pull_MD


@dataclass(frozen=True)
class Kernel:
    """Correlations of points; the part `share` comes from the parameters' own effects."""

    parameter_D: Index  # the parameter of each model column, ascending
    share: float

    @property
    def parameters(self) -> int:
        return int(self.parameter_D[-1]) + 1 if len(self.parameter_D) else 0

    def __call__(self, x_ND: Array, z_MD: Array) -> Array:
        """Return the correlation (N x M) of every row of x with every row of z."""
        if not self.share:
            return matern52(squared_distances(x_ND, z_MD))
        r2_PNM = self.distances(x_ND, z_MD)
        joint_NM = matern52(r2_PNM.sum(axis=0))
        r2_PNM *= self.parameters
        joint_NM *= 1.0 - self.share
        joint_NM += self.share / self.parameters * matern52(r2_PNM).sum(axis=0)
        return joint_NM

    def distances(self, x_ND: Array, z_MD: Array) -> Array:
        """Return the squared distance in each parameter (P x N x M)."""
        first_P = np.searchsorted(self.parameter_D, np.arange(self.parameters + 1))
        r2_PNM: Array = x_ND.T[first_P[:-1], :, None] - z_MD.T[first_P[:-1], None, :]
        r2_PNM *= r2_PNM
        for parameter in np.flatnonzero(np.diff(first_P) > 1):  # categories
            columns = slice(first_P[parameter], first_P[parameter + 1])
            r2_PNM[parameter] = squared_distances(x_ND[:, columns], z_MD[:, columns])
        return r2_PNM

    def by_distance(self, r2_PS: Array) -> tuple[Array, Array, Array | None]:
        """Return the correlation k_S at squared distances, and its derivative by each of them.

        Returns:
            k_S; the part of the derivative that all parameters share, S; the part that is each
                parameter's own, P x S (None: there is none). S may be any number of axes.
        """
        k_S, joint_S = matern52_with_slope(r2_PS.sum(axis=0))
        if not self.share:
            return k_S, joint_S, None
        k_PS, own_PS = matern52_with_slope(self.parameters * r2_PS)
        k_S *= 1.0 - self.share
        k_S += self.share / self.parameters * k_PS.sum(axis=0)
        joint_S *= 1.0 - self.share
        own_PS *= self.share  # d/dr2_p of share / P matern52(P r2_p)
        return k_S, joint_S, own_PS

    def slopes(self, x_ND: Array, z_MD: Array) -> "Slopes":
        """Return correlations together with the terms of their gradients by the queries z."""
        if self.share:
            return Slopes(self, x_ND, z_MD, *self.by_distance(self.distances(x_ND, z_MD)))
        return Slopes(self, x_ND, z_MD, *matern52_with_slope(squared_distances(x_ND, z_MD)), None)


@dataclass(frozen=True)
class Slopes:
    """Correlations of x and z, with their derivatives by the squared distance per parameter."""

    kernel: Kernel
    x_ND: Array
    z_MD: Array
    k_NM: Array
    joint_NM: Array  # the part of the derivative that all parameters share
    own_PNM: Array | None  # the part that is each parameter's own; None: there is none

    def pull(self, weight_NM: Array) -> Array:
        """Return the gradient of sum_i weight_ij k_ij with respect to each query z_j (M x D)."""
        pull_MD = weighted_pull(weight_NM * self.joint_NM, self.x_ND, self.z_MD)
        if self.own_PNM is None:
            return pull_MD
        own_DNM = (self.own_PNM * weight_NM)[self.kernel.parameter_D]
        total_MD = own_DNM.sum(axis=1).T
        pull_MD += 2.0 * (self.z_MD * total_MD - np.einsum("dnm,nd->md", own_DNM, self.x_ND))
        return pull_MD
