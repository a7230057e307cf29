"""The Matern-5/2 kernel and what its derivatives need, without an N x N array per column.

Axes: N and M points, D model columns. Points arrive divided by their lengthscales, so that the
squared distance is r2 = sum_d (x_d - z_d)^2 and the kernel has no lengthscale of its own.
Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), eq. 4.17.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def squared_distances(x_ND: Array, z_MD: Array) -> Array:
    """Squared Euclidean distance of every row of x to every row of z, never negative."""
    x2_N = np.einsum("nd,nd->n", x_ND, x_ND)
    z2_M = np.einsum("md,md->m", z_MD, z_MD)
    r2_NM: Array = x_ND @ (-2.0 * z_MD.T)
    r2_NM += x2_N[:, None]
    r2_NM += z2_M
    return np.maximum(r2_NM, 0.0, out=r2_NM)


def matern52(r2_NM: Array) -> Array:
    """Correlation at the given squared distances."""
    s_NM = np.sqrt(5.0 * r2_NM)
    return (1.0 + s_NM + s_NM**2 / 3.0) * np.exp(-s_NM)


def matern52_with_slope(r2_NM: Array) -> tuple[Array, Array]:
    """Correlation and its derivative with respect to the squared distance (finite at 0)."""
    s_NM = np.sqrt(5.0 * r2_NM)
    decay_NM = np.exp(-s_NM)
    linear_NM = (1.0 + s_NM) * decay_NM
    return linear_NM + s_NM**2 / 3.0 * decay_NM, linear_NM * (-5.0 / 6.0)


def weighted_spread(weight_NN: Array, x_ND: Array) -> Array:
    """sum_ij weight_ij (x_id - x_jd)^2 for each column d; weight is symmetric.

    Expanded to 2 (sum_i x_id^2 rowsum_i - sum_i x_id (weight x)_id), which costs one product of
    N x N by N x D.
    """
    row_N = weight_NN.sum(axis=1)
    spread_D: Array = 2.0 * (row_N @ x_ND**2 - np.einsum("nd,nd->d", x_ND, weight_NN @ x_ND))
    return spread_D


def weighted_pull(weight_NM: Array, x_ND: Array, z_MD: Array) -> Array:
    """Gradient of sum_i weight_ij r2(x_i, z_j) with respect to each query z_j."""
    pull_MD: Array = 2.0 * (z_MD * weight_NM.sum(axis=0)[:, None] - weight_NM.T @ x_ND)
    return pull_MD
