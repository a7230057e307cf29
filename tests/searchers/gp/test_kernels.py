"""The kernel against scikit-learn and its formula, and its derivatives against differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import Matern

from searchers.gp.kernels import (
    Kernel,
    matern52,
    matern52_with_slope,
    squared_distances,
    weighted_pull,
)

CATEGORIES_D = np.array([0, 1, 1, 1, 2, 3, 3])  # parameters 1 and 3 have several columns
SHARES = pytest.mark.parametrize("share", [0.0, 0.3, 1.0])


def plain(x_ND, z_MD, parameter_D, share):
    """The formula of the module's head, a pair at a time."""
    parameters = parameter_D.max() + 1
    k_NM = np.empty((len(x_ND), len(z_MD)))
    for n, x_D in enumerate(x_ND):
        for m, z_D in enumerate(z_MD):
            r2_P = np.array([np.sum((x_D - z_D)[parameter_D == p] ** 2) for p in range(parameters)])
            own = sum(matern52(parameters * r2) for r2 in r2_P) / parameters
            k_NM[n, m] = (1.0 - share) * matern52(r2_P.sum()) + share * own
    return k_NM


def test_squared_distances_equal_the_plain_double_loop():
    rng = np.random.default_rng(0)
    x_ND, z_MD = rng.normal(size=(7, 3)), rng.normal(size=(4, 3))
    looped = [[np.sum((x - z) ** 2) for z in z_MD] for x in x_ND]
    np.testing.assert_allclose(squared_distances(x_ND, z_MD), looped, atol=1e-12)


def test_squared_distances_of_a_point_to_itself_never_round_below_zero():
    x_ND = np.random.default_rng(1).normal(size=(50, 5)) * 1e4
    assert (squared_distances(x_ND, x_ND) >= 0.0).all()


def test_matern52_with_ard_equals_scikit_learn():
    rng = np.random.default_rng(2)
    x_ND, z_MD = rng.random((9, 3)), rng.random((5, 3))
    lengthscale_D = np.array([0.2, 1.0, 3.0])
    ours = Kernel(np.arange(3), 0.0)(x_ND / lengthscale_D, z_MD / lengthscale_D)
    np.testing.assert_allclose(ours, Matern(lengthscale_D, nu=2.5)(x_ND, z_MD), atol=1e-12)


def test_slope_equals_central_differences_and_is_finite_at_zero():
    r2_NM = np.array([[1e-3, 0.1, 1.0, 5.0, 40.0]])
    h = 1e-6
    value_NM, slope_NM = matern52_with_slope(r2_NM)
    np.testing.assert_allclose(value_NM, matern52(r2_NM), rtol=1e-14)
    differences = (matern52(r2_NM + h) - matern52(r2_NM - h)) / (2 * h)
    np.testing.assert_allclose(slope_NM, differences, rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(matern52_with_slope(np.zeros((1, 1)))[1], -5.0 / 6.0)


@SHARES
@pytest.mark.parametrize("parameter_D", [np.arange(3), np.zeros(2, dtype=int), CATEGORIES_D])
def test_the_kernel_equals_its_formula_a_pair_at_a_time(parameter_D, share):
    """Otherwise own effects mix columns of different parameters, or categories count by column."""
    rng = np.random.default_rng(3)
    x_ND, z_MD = rng.normal(size=(6, len(parameter_D))), rng.normal(size=(4, len(parameter_D)))
    kernel = Kernel(parameter_D, share)
    expected_NM = plain(x_ND, z_MD, parameter_D, share)
    np.testing.assert_allclose(kernel(x_ND, z_MD), expected_NM, atol=1e-12)
    np.testing.assert_allclose(kernel.slopes(x_ND, z_MD).k_NM, expected_NM, atol=1e-12)
    k_NM, _, _ = kernel.by_distance(kernel.distances(x_ND, z_MD))
    np.testing.assert_allclose(k_NM, expected_NM, atol=1e-12)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    share=st.floats(0.0, 1.0),
    spread=st.floats(-3.0, 1.0).map(lambda exponent: 10.0**exponent),
    seed=st.integers(0, 2**32 - 1),
)
def test_correlations_of_any_points_are_positive_definite(sizes, share, spread, seed):
    """Otherwise there are points whose mixture has a negative variance, and no Cholesky factor."""
    parameter_D = np.repeat(np.arange(len(sizes)), sizes)
    x_ND = spread * np.random.default_rng(seed).standard_normal((25, len(parameter_D)))
    k_NN = Kernel(parameter_D, share)(x_ND, x_ND)
    np.testing.assert_allclose(k_NN, k_NN.T, atol=1e-12)
    np.testing.assert_allclose(np.diag(k_NN), 1.0, atol=1e-6)
    assert np.linalg.eigvalsh(k_NN).min() > -1e-6  # rounding, in the squares of near points


@SHARES
def test_the_derivatives_by_distance_equal_central_differences(share):
    """Otherwise the fit of the lengthscales stops away from an optimum."""
    kernel, h = Kernel(CATEGORIES_D, share), 1e-6
    r2_PS = np.random.default_rng(4).uniform(0.05, 3.0, size=(4, 5))
    _, joint_S, own_PS = kernel.by_distance(r2_PS)
    for parameter in range(4):
        step_PS = h * np.eye(4)[:, parameter, None]
        up_S, down_S = (
            kernel.by_distance(r2_PS + step_PS)[0],
            kernel.by_distance(r2_PS - step_PS)[0],
        )
        slope_S = joint_S if own_PS is None else joint_S + own_PS[parameter]
        np.testing.assert_allclose(slope_S, (up_S - down_S) / (2 * h), atol=1e-8)


def test_weighted_pull_equals_central_differences():
    rng = np.random.default_rng(5)
    x_ND, z_MD, weight_NM = rng.random((6, 3)), rng.random((4, 3)), rng.normal(size=(6, 4))
    h = 1e-6
    for column in range(3):
        step_D = h * np.eye(3)[column]
        up_NM = squared_distances(x_ND, z_MD + step_D)
        down_NM = squared_distances(x_ND, z_MD - step_D)
        differences_M = ((up_NM - down_NM) * weight_NM).sum(axis=0) / (2 * h)
        pull_M = weighted_pull(weight_NM, x_ND, z_MD)[:, column]
        np.testing.assert_allclose(pull_M, differences_M, atol=1e-7)


@SHARES
def test_the_pull_of_correlations_equals_central_differences(share):
    """Otherwise the ascent of the acquisition goes the wrong way, in some column."""
    rng, kernel, h = np.random.default_rng(6), Kernel(CATEGORIES_D, share), 1e-6
    x_ND, z_MD, weight_NM = rng.random((6, 7)), rng.random((4, 7)), rng.normal(size=(6, 4))
    pull_MD = kernel.slopes(x_ND, z_MD).pull(weight_NM)
    for column, step_D in enumerate(h * np.eye(7)):
        change_NM = kernel(x_ND, z_MD + step_D) - kernel(x_ND, z_MD - step_D)
        differences_M = (change_NM * weight_NM).sum(axis=0) / (2 * h)
        np.testing.assert_allclose(pull_MD[:, column], differences_M, atol=1e-8)
