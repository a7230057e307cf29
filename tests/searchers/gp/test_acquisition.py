"""log-EI against quadrature, tables of its tail, and finite differences."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from searchers.gp.acquisition import LogExpectedImprovement, log_h
from searchers.gp.model import Hyperparameters, Posterior, Rows


@pytest.fixture
def posterior():
    rng = np.random.default_rng(0)
    x_ND = rng.random((15, 3))
    loss_N = np.sin(6.0 * x_ND[:, 0]) + x_ND[:, 1]
    hyperparameters = Hyperparameters((0.3, 0.6, 2.0), noise=1e-4, scale=1.0)
    return Posterior.of(Rows(x_ND, loss_N - loss_N.mean(), np.arange(3), 0.3), hyperparameters)


@pytest.mark.parametrize("z", [-6.0, -3.0, -1.0001, -0.9999, 0.0, 0.5, 4.0])
def test_log_h_equals_quadrature(z):
    integral, _ = quad(lambda u: (z - u) * norm.pdf(u), -np.inf, z, epsabs=0.0, epsrel=1e-12)
    assert log_h(np.array([z]))[0].item() == pytest.approx(np.log(integral), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("z", "known"),
    # Computed to 60 digits, from erfc where it does not cancel, elsewhere from its series.
    [
        (-40.0, -808.29856835661898),
        (-1e3, -500014.73445209116),
        (-1e6, -500000000028.54996),
        (-1e10, -5e19),
    ],
)
def test_log_h_keeps_its_digits_in_the_far_tail(z, known):
    value, slope = log_h(np.array([z]))
    assert value.item() == pytest.approx(known, rel=1e-9)
    # The slope tends to -z + 2/|z|: the remaining improvement lies at the edge of the tail.
    assert slope.item() == pytest.approx(-z, rel=2e-3)


def test_log_h_is_smooth_where_its_branches_meet():
    for seam in (-200.0, -1.0):
        value, slope = log_h(np.array([seam - 1e-7, seam + 1e-7]))
        assert value[1] - value[0] == pytest.approx(2e-7 * slope.mean(), rel=1e-3)
        assert slope[1] == pytest.approx(slope[0], rel=1e-6)


def test_slope_of_log_h_equals_central_differences():
    z_M = np.array([-150.0, -20.0, -2.0, -0.5, 0.0, 3.0, 30.0])
    h = 1e-5
    differences_M = (log_h(z_M + h)[0] - log_h(z_M - h)[0]) / (2 * h)
    np.testing.assert_allclose(log_h(z_M)[1], differences_M, rtol=1e-5)


def test_value_is_the_logarithm_of_the_expected_improvement(posterior):
    acquisition = LogExpectedImprovement(posterior, posterior.fitted_N.min())
    query_MD = np.random.default_rng(1).random((5, 3))
    mean_M, variance_M = posterior.predict(query_MD)
    draws = np.random.default_rng(2).standard_normal((400_000, 1))
    losses = mean_M + np.sqrt(variance_M) * draws
    sampled_M = np.maximum(posterior.fitted_N.min() - losses, 0.0).mean(axis=0)
    likely_M = sampled_M > 1e-4  # rarer improvements are too few among the draws
    assert likely_M.sum() >= 2
    np.testing.assert_allclose(np.exp(acquisition(query_MD))[likely_M], sampled_M[likely_M], 0.1)


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
