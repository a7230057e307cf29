"""Sums of terms and the cost of a trial, against finite differences and plain arithmetic."""

import numpy as np
import pytest
from gradients import check_gradient

from searchers.gp.acquisition import LogExpectedImprovement
from searchers.gp.model import Hyperparameters, Posterior, Rows
from searchers.gp.terms import LogCost, Sum

KNOWN = Hyperparameters((0.4, 0.7), noise=1e-4, scale=1.0)


@pytest.fixture
def terms():
    """Return improvement on a bowl, and seconds that grow tenfold along the first column."""
    x_ND = np.random.default_rng(0).random((30, 2))
    bowl_N = ((x_ND - 0.5) ** 2).sum(axis=1)
    output_N = (bowl_N - bowl_N.mean()) / bowl_N.std()
    loss = Posterior.of(Rows(x_ND, output_N, np.arange(2), 0.3), KNOWN)
    log_N = np.log(10.0) * x_ND[:, 0] + 3.0
    seconds_N = (log_N - log_N.mean()) / log_N.std()
    seconds = Posterior.of(Rows(x_ND, seconds_N, np.arange(2), 0.3), KNOWN)
    return LogExpectedImprovement(loss, loss.fitted_N.min()), LogCost(seconds, float(log_N.std()))


def test_a_sum_adds_values_and_gradients(terms):
    query_MD = np.random.default_rng(1).random((6, 2))
    value_M, gradient_MD = Sum(terms).with_gradient(query_MD)
    np.testing.assert_allclose(value_M, terms[0](query_MD) + terms[1](query_MD), rtol=1e-12)
    np.testing.assert_allclose(Sum(terms)(query_MD), value_M, rtol=1e-12)
    apart_MD = terms[0].with_gradient(query_MD)[1] + terms[1].with_gradient(query_MD)[1]
    np.testing.assert_allclose(gradient_MD, apart_MD, rtol=1e-12)


def test_the_gradient_of_the_cost_equals_central_differences(terms):
    check_gradient(terms[1], np.random.default_rng(2).random((10, 2)), rtol=1e-5, atol=1e-6)


def test_cost_counts_in_natural_logarithms(terms):
    """Otherwise ten times the seconds would not require ten times the improvement."""
    cheap, dear = terms[1](np.array([[0.1, 0.5], [0.9, 0.5]]))
    assert cheap - dear == pytest.approx(0.8 * np.log(10.0), rel=0.05)
