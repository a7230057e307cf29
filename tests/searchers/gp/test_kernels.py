"""The kernel against scikit-learn, and its derivatives against differences and plain sums."""

import numpy as np
from sklearn.gaussian_process.kernels import Matern

from searchers.gp.kernels import (
    matern52,
    matern52_with_slope,
    squared_distances,
    weighted_pull,
    weighted_spread,
)


def test_squared_distances_equal_the_plain_double_loop():
    rng = np.random.default_rng(0)
    x_ND, z_MD = rng.normal(size=(7, 3)), rng.normal(size=(4, 3))
    plain = [[np.sum((x - z) ** 2) for z in z_MD] for x in x_ND]
    np.testing.assert_allclose(squared_distances(x_ND, z_MD), plain, atol=1e-12)


def test_squared_distances_of_a_point_to_itself_never_round_below_zero():
    x_ND = np.random.default_rng(1).normal(size=(50, 5)) * 1e4
    assert (squared_distances(x_ND, x_ND) >= 0.0).all()


def test_matern52_with_ard_equals_scikit_learn():
    rng = np.random.default_rng(2)
    x_ND, z_MD = rng.random((9, 3)), rng.random((5, 3))
    lengthscale_D = np.array([0.2, 1.0, 3.0])
    ours = matern52(squared_distances(x_ND / lengthscale_D, z_MD / lengthscale_D))
    np.testing.assert_allclose(ours, Matern(lengthscale_D, nu=2.5)(x_ND, z_MD), atol=1e-12)


def test_slope_equals_central_differences_and_is_finite_at_zero():
    r2_NM = np.array([[1e-3, 0.1, 1.0, 5.0, 40.0]])
    h = 1e-6
    value_NM, slope_NM = matern52_with_slope(r2_NM)
    np.testing.assert_allclose(value_NM, matern52(r2_NM), rtol=1e-14)
    differences = (matern52(r2_NM + h) - matern52(r2_NM - h)) / (2 * h)
    np.testing.assert_allclose(slope_NM, differences, rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(matern52_with_slope(np.zeros((1, 1)))[1], -5.0 / 6.0)


def test_weighted_spread_equals_the_sum_over_pairs():
    rng = np.random.default_rng(3)
    x_ND, half_NN = rng.normal(size=(6, 3)), rng.normal(size=(6, 6))
    weight_NN = half_NN + half_NN.T
    difference_NND = x_ND[:, None] - x_ND[None]
    plain_D = np.einsum("ij,ijd->d", weight_NN, difference_NND**2)
    np.testing.assert_allclose(weighted_spread(weight_NN, x_ND), plain_D, atol=1e-10)


def test_weighted_pull_equals_central_differences():
    rng = np.random.default_rng(4)
    x_ND, z_MD, weight_NM = rng.random((6, 3)), rng.random((4, 3)), rng.normal(size=(6, 4))
    h = 1e-6
    for column in range(3):
        step_D = h * np.eye(3)[column]
        up_NM = squared_distances(x_ND, z_MD + step_D)
        down_NM = squared_distances(x_ND, z_MD - step_D)
        differences_M = ((up_NM - down_NM) * weight_NM).sum(axis=0) / (2 * h)
        pull_M = weighted_pull(weight_NM, x_ND, z_MD)[:, column]
        np.testing.assert_allclose(pull_M, differences_M, atol=1e-7)
