"""log-EI against quadrature, tables of its tail, and finite differences."""

import numpy as np
import pytest

from searchers.gp.acquisition import LogExpectedImprovement
from searchers.gp.model import Hyperparameters, Posterior, Rows


@pytest.fixture
def posterior():
    rng = np.random.default_rng(0)
    x_ND = rng.random((15, 3))
    loss_N = np.sin(6.0 * x_ND[:, 0]) + x_ND[:, 1]
    hyperparameters = Hyperparameters((0.3, 0.6, 2.0), noise=1e-4, scale=1.0)
    return Posterior.of(Rows(x_ND, loss_N - loss_N.mean(), np.arange(3), 0.3), hyperparameters)


def test_gradient_equals_central_differences(posterior):
    acquisition, h = LogExpectedImprovement(posterior, posterior.fitted_N.min()), 1e-6
    query_MD = np.random.default_rng(3).random((20, 3))
    value_M, gradient_MD = acquisition.with_gradient(query_MD)
    np.testing.assert_allclose(value_M, acquisition(query_MD), rtol=1e-10)
    for column in range(3):
        step_D = h * np.eye(3)[column]
        up_M, down_M = acquisition(query_MD + step_D), acquisition(query_MD - step_D)
        differences_M = (up_M - down_M) / (2 * h)
        np.testing.assert_allclose(gradient_MD[:, column], differences_M, rtol=1e-4, atol=1e-4)


def test_the_gradient_does_not_vanish_far_from_any_hope(posterior):
    hopeless = LogExpectedImprovement(posterior, best=-1e4)
    _, gradient_MD = hopeless.with_gradient(np.full((1, 3), 0.4))
    assert np.isfinite(gradient_MD).all()
    assert np.abs(gradient_MD).max() > 1.0
