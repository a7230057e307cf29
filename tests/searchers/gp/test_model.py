"""The regression against a textbook solve, scikit-learn and finite differences."""

import numpy as np
import pytest

from searchers.gp.kernels import Kernel
from searchers.gp.model import (
    LENGTHSCALE_BOUNDS,
    NOISE_BOUNDS,
    Hyperparameters,
    Posterior,
    Rows,
    dimension_scaled_prior,
    fit,
    negative_log_posterior,
    safe_cholesky,
    short_prior,
)

PARAMETER_D = np.array([0, 1, 1, 1, 2])  # the second parameter has three columns
KNOWN = Hyperparameters((0.4, 0.9, 2.0), noise=0.01, scale=1.7)


def some_rows(count: int, share: float = 0.3) -> Rows:
    """Return points in five columns and a smooth loss with a little noise."""
    rng = np.random.default_rng(0)
    x_ND = rng.random((count, 5))
    loss_N = np.sin(5.0 * x_ND[:, 0]) + x_ND[:, 1] + 0.05 * rng.standard_normal(count)
    return Rows(x_ND, (loss_N - loss_N.mean()) / loss_N.std(), PARAMETER_D, share)


def kernel(x_ND, z_MD, share):
    inverse_D = 1.0 / np.array(KNOWN.lengthscales)[PARAMETER_D]
    return KNOWN.scale * Kernel(PARAMETER_D, share)(x_ND * inverse_D, z_MD * inverse_D)


def test_believed_rows_equal_a_fit_to_their_predicted_losses():
    rows, new_KD = some_rows(20), np.random.default_rng(5).random((4, 5))
    before = Posterior.of(rows, KNOWN)
    predicted_K = before.predict(new_KD)[0]
    fantasized = before.fantasize(new_KD)
    told_ND, told_N = np.vstack([rows.x_ND, new_KD]), np.append(rows.loss_N, predicted_K)
    refitted = Posterior.of(Rows(told_ND, told_N, PARAMETER_D, rows.additive_weight), KNOWN)
    query_MD = np.random.default_rng(6).random((9, 5))
    np.testing.assert_allclose(fantasized.predict(query_MD), refitted.predict(query_MD), atol=1e-8)
    np.testing.assert_allclose(fantasized.fitted_N, refitted.fitted_N, atol=1e-8)
    np.testing.assert_allclose(fantasized.predict(query_MD)[0], before.predict(query_MD)[0])


def test_fit_finds_the_relevant_parameter_and_little_noise():
    rng = np.random.default_rng(7)
    x_ND = rng.random((60, 3))
    loss_N = np.sin(7.0 * x_ND[:, 1])
    rows = Rows(x_ND, (loss_N - loss_N.mean()) / loss_N.std(), np.arange(3), 0.3)
    fitted = fit(rows, dimension_scaled_prior(3), None, rng)
    assert fitted.lengthscales[1] < 1.0 < 5.0 < min(fitted.lengthscales[0], fitted.lengthscales[2])
    assert fitted.noise < 0.01


def test_own_effects_are_learned_from_fewer_points():
    """Otherwise a sweep of many parameters needs more trials before its model is of use."""
    errors = {share: [error_on_a_sum(share, seed) for seed in range(6)] for share in (0.0, 0.3)}
    assert np.mean(errors[0.3]) < 0.9 * np.mean(errors[0.0])


def error_on_a_sum(share, seed):
    """Return the RMSE on a sum of functions of one of six parameters each, from 20 points."""
    rng = np.random.default_rng(seed)
    x_ND, query_MD = rng.random((20, 6)), rng.random((500, 6))

    def loss(x_ND):
        return np.sum(np.sin(2.0 * np.pi * x_ND[:, :3]), axis=1) + np.sum(x_ND[:, 3:] ** 2, axis=1)

    mean, deviation = loss(query_MD).mean(), loss(query_MD).std()
    rows = Rows(x_ND, (loss(x_ND) - mean) / deviation, np.arange(6), share)
    posterior = Posterior.of(rows, fit(rows, dimension_scaled_prior(6), None, rng))
    return np.sqrt(np.mean((posterior.mean(query_MD) - (loss(query_MD) - mean) / deviation) ** 2))


def test_a_warm_fit_is_no_worse_than_its_start_and_stays_in_bounds():
    rows, prior = some_rows(30), short_prior(3)
    outside = Hyperparameters((1e-9, 1e9, 1.0), noise=50.0, scale=1.0)
    fitted = fit(rows, prior, outside, np.random.default_rng(8))
    low, high = np.array(LENGTHSCALE_BOUNDS) * (1 - 1e-9, 1 + 1e-9)
    assert all(low <= lengthscale <= high for lengthscale in fitted.lengthscales)
    assert fitted.noise <= NOISE_BOUNDS[1] * (1 + 1e-9)
    again = fit(rows, prior, fitted, np.random.default_rng(9))
    before, _ = negative_log_posterior(fitted.log_vector(), rows, prior)
    after, _ = negative_log_posterior(again.log_vector(), rows, prior)
    assert after <= before + 1e-9


@pytest.mark.parametrize("broken", [-np.eye(3), np.full((3, 3), np.nan)])
def test_safe_cholesky_says_what_it_tried(broken):
    with pytest.raises(np.linalg.LinAlgError, match="3 x 3 kernel matrix"):
        safe_cholesky(broken)


def test_repeated_rows_have_a_posterior():
    x_ND = np.tile(np.random.default_rng(10).random((1, 5)), (6, 1))
    tiny = Hyperparameters((1.0, 1.0, 1.0), noise=1e-6, scale=20.0)
    posterior = Posterior.of(Rows(x_ND, np.ones(6), PARAMETER_D, 0.3), tiny)
    mean_M, variance_M = posterior.predict(x_ND[:1])
    np.testing.assert_allclose(mean_M, 1.0, atol=1e-3)
    assert (variance_M > 0.0).all()


def test_drawn_functions_have_the_mean_and_variance_of_the_posterior():
    posterior = Posterior.of(some_rows(12), KNOWN)
    rng = np.random.default_rng(1)
    x_MD = rng.random((5, 5))
    mean_M, variance_M = posterior.predict(x_MD)
    drawn_SM = posterior.draw(x_MD, 20_000, rng)
    np.testing.assert_allclose(drawn_SM.mean(axis=0), mean_M, atol=0.03)
    np.testing.assert_allclose(drawn_SM.var(axis=0), variance_M, rtol=0.1, atol=1e-4)
