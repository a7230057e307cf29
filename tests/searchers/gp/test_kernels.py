"""The kernel against scikit-learn and its formula, and its derivatives against differences."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.kernels import Kernel, squared_distances


def test_squared_distances_of_a_point_to_itself_never_round_below_zero():
    x_ND = np.random.default_rng(1).normal(size=(50, 5)) * 1e4
    assert (squared_distances(x_ND, x_ND) >= 0.0).all()


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
