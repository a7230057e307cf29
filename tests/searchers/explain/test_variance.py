"""Sobol' indices of functions whose indices are known in closed form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.explain.variance import drawn_indices, indices, pair_indices


def ishigami(unit_SP):
    x_SP = np.pi * (2.0 * unit_SP - 1.0)
    return (
        np.sin(x_SP[:, 0])
        + 7.0 * np.sin(x_SP[:, 1]) ** 2
        + 0.1 * x_SP[:, 2] ** 4 * np.sin(x_SP[:, 0])
    )


# Ishigami & Homma (1990), a = 7, b = 0.1, from its closed form.
ISHIGAMI_MAIN = [0.3139, 0.4424, 0.0]
ISHIGAMI_TOTAL = [0.5576, 0.4424, 0.2437]
WEIGHTS = st.lists(st.floats(0.1, 10.0), min_size=2, max_size=8)


@pytest.mark.parametrize("seed", range(3))
def test_ishigami_has_its_known_indices(seed):
    sobol = indices(ishigami, 3, seed=seed)
    np.testing.assert_allclose(sobol.main_P, ISHIGAMI_MAIN, atol=0.02)
    np.testing.assert_allclose(sobol.total_P, ISHIGAMI_TOTAL, atol=0.02)


def test_only_the_pair_that_interacts_in_ishigami_is_found():
    pair_PP = pair_indices(ishigami, 3)
    expected_PP = np.zeros((3, 3))
    expected_PP[0, 2] = expected_PP[2, 0] = 0.2437
    np.testing.assert_allclose(pair_PP, expected_PP, atol=0.02)


@given(WEIGHTS)
def test_a_sum_has_the_squares_of_its_weights_as_shares_and_no_interaction(weights):
    weight_P = np.array(weights)
    known_P = weight_P**2 / np.sum(weight_P**2)
    sobol = indices(lambda unit_SP: unit_SP @ weight_P, len(weights), samples=1024)
    np.testing.assert_allclose(sobol.main_P, known_P, atol=0.01)
    np.testing.assert_allclose(sobol.total_P, known_P, atol=0.01)


def test_a_product_of_centred_inputs_is_interaction_alone():
    def product(unit_SP):
        return (unit_SP[:, 0] - 0.5) * (unit_SP[:, 1] - 0.5)

    sobol = indices(product, 3)
    np.testing.assert_allclose(sobol.main_P, [0.0, 0.0, 0.0], atol=0.02)
    np.testing.assert_allclose(sobol.total_P, [1.0, 1.0, 0.0], atol=0.02)
    assert pair_indices(product, 3)[0, 1] == pytest.approx(1.0, abs=0.02)


def test_functions_drawn_together_have_the_indices_of_each_alone():
    def draw(unit_MP):
        return np.array([ishigami(unit_MP), unit_MP[:, 0], np.zeros(len(unit_MP))])

    main_SP, total_SP = drawn_indices(draw, 3, 2048)
    np.testing.assert_allclose(total_SP[0], indices(ishigami, 3).total_P, atol=1e-12)
    np.testing.assert_allclose(main_SP[1], [1.0, 0.0, 0.0], atol=0.02)
    np.testing.assert_allclose(total_SP[2], 0.0)
