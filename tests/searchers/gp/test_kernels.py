"""The kernel against scikit-learn and its formula, and its derivatives against differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.kernels import (
    Kernel,
    matern52,
    squared_distances,
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


def test_squared_distances_of_a_point_to_itself_never_round_below_zero():
    x_ND = np.random.default_rng(1).normal(size=(50, 5)) * 1e4
    assert (squared_distances(x_ND, x_ND) >= 0.0).all()


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
