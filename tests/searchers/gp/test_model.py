"""The regression against a textbook solve, scikit-learn and finite differences."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from searchers.gp.kernels import Kernel
from searchers.gp.model import (
    JITTER,
    LENGTHSCALE_BOUNDS,
    NOISE_BOUNDS,
    Hyperparameters,
    Posterior,
    Rows,
    append_to_cholesky,
    dimension_scaled_prior,
    fit,
    negative_log_posterior,
    safe_cholesky,
    short_prior,
)

PARAMETER_D = np.array([0, 1, 1, 1, 2])  # the second parameter has three columns
KNOWN = Hyperparameters((0.4, 0.9, 2.0), noise=0.01, scale=1.7)
SHARES = pytest.mark.parametrize("share", [0.0, 0.3])


def some_rows(count: int, share: float = 0.3) -> Rows:
    """Return points in five columns and a smooth loss with a little noise."""
    rng = np.random.default_rng(0)
    x_ND = rng.random((count, 5))
    loss_N = np.sin(5.0 * x_ND[:, 0]) + x_ND[:, 1] + 0.05 * rng.standard_normal(count)
    return Rows(x_ND, (loss_N - loss_N.mean()) / loss_N.std(), PARAMETER_D, share)


def kernel(x_ND, z_MD, share):
    inverse_D = 1.0 / np.array(KNOWN.lengthscales)[PARAMETER_D]
    return KNOWN.scale * Kernel(PARAMETER_D, share)(x_ND * inverse_D, z_MD * inverse_D)


@SHARES
@pytest.mark.parametrize("prior", [dimension_scaled_prior(3), short_prior(3)])
def test_gradient_of_the_log_posterior_equals_central_differences(prior, share):
    rows, rng, h = some_rows(20, share), np.random.default_rng(1), 1e-5
    for _ in range(5):
        theta_T = prior.start_T + 0.5 * rng.standard_normal(5)
        value, gradient_T = negative_log_posterior(theta_T, rows, prior)
        differences_T = [
            negative_log_posterior(theta_T + step_T, rows, prior)[0]
            - negative_log_posterior(theta_T - step_T, rows, prior)[0]
            for step_T in h * np.eye(5)
        ]
        np.testing.assert_allclose(gradient_T, np.array(differences_T) / (2 * h), atol=1e-5)
        assert np.isfinite(value)


@SHARES
def test_log_posterior_equals_the_normal_density_and_the_prior(share):
    rows, prior, theta_T = some_rows(15, share), dimension_scaled_prior(3), KNOWN.log_vector()
    total_NN = kernel(rows.x_ND, rows.x_ND, share) + (KNOWN.noise + JITTER) * np.eye(15)
    likelihood = 0.5 * rows.loss_N @ np.linalg.solve(total_NN, rows.loss_N)
    likelihood += 0.5 * np.linalg.slogdet(total_NN)[1]
    penalty = 0.5 * np.sum(((theta_T - prior.mean_T) / prior.deviation_T) ** 2)
    value, _ = negative_log_posterior(theta_T, rows, prior)
    assert value == pytest.approx(likelihood + penalty, abs=1e-8)


def test_the_pairs_of_rows_are_those_below_the_diagonal():
    """Otherwise a fit compares the losses of some rows by the distances of others."""
    rows = some_rows(6)
    for first, second, distance_P in zip(
        rows.pairs.first_S, rows.pairs.second_S, rows.pairs.distance_PS.T, strict=True
    ):
        assert second < first
        difference_D = rows.x_ND[first] - rows.x_ND[second]
        np.testing.assert_allclose(np.bincount(PARAMETER_D, difference_D**2), distance_P)
    assert len(rows.pairs.first_S) == 15


@SHARES
def test_posterior_equals_the_textbook_solve(share):
    rows, query_MD = some_rows(25, share), np.random.default_rng(2).random((8, 5))
    total_NN = kernel(rows.x_ND, rows.x_ND, share) + (KNOWN.noise + JITTER) * np.eye(25)
    k_NM = kernel(rows.x_ND, query_MD, share)
    posterior = Posterior.of(rows, KNOWN)
    mean_M, variance_M = posterior.predict(query_MD)
    np.testing.assert_allclose(posterior.mean(query_MD), mean_M, atol=1e-12)
    np.testing.assert_allclose(mean_M, k_NM.T @ np.linalg.solve(total_NN, rows.loss_N), atol=1e-8)
    explained_M = np.sum(k_NM * np.linalg.solve(total_NN, k_NM), axis=0)
    np.testing.assert_allclose(variance_M, KNOWN.scale - explained_M, atol=1e-8)


def test_posterior_equals_scikit_learn_at_the_same_hyperparameters():
    rows, query_MD = some_rows(30, share=0.0), np.random.default_rng(3).random((10, 5))
    lengthscale_D = np.array(KNOWN.lengthscales)[PARAMETER_D]
    rival = GaussianProcessRegressor(
        ConstantKernel(KNOWN.scale) * Matern(lengthscale_D, nu=2.5),
        alpha=KNOWN.noise + JITTER,
        optimizer=None,
    ).fit(rows.x_ND, rows.loss_N)
    rival_mean_M, rival_deviation_M = rival.predict(query_MD, return_std=True)
    mean_M, variance_M = Posterior.of(rows, KNOWN).predict(query_MD)
    np.testing.assert_allclose(mean_M, rival_mean_M, atol=1e-8)
    np.testing.assert_allclose(np.sqrt(variance_M), rival_deviation_M, atol=1e-8)


def test_fitted_means_are_the_predictions_at_the_rows():
    rows = some_rows(20)
    posterior = Posterior.of(rows, KNOWN)
    np.testing.assert_allclose(posterior.fitted_N, posterior.predict(rows.x_ND)[0], atol=1e-9)


@SHARES
def test_gradients_of_mean_and_variance_equal_central_differences(share):
    posterior, h = Posterior.of(some_rows(20, share), KNOWN), 1e-6
    query_MD = np.random.default_rng(4).random((6, 5))
    mean_M, variance_M, mean_slope_MD, variance_slope_MD = posterior.predict_with_gradient(query_MD)
    np.testing.assert_allclose((mean_M, variance_M), posterior.predict(query_MD), atol=1e-12)
    for column in range(5):
        step_D = h * np.eye(5)[column]
        up, down = posterior.predict(query_MD + step_D), posterior.predict(query_MD - step_D)
        slopes = (np.array(up) - np.array(down)) / (2 * h)
        ours = (mean_slope_MD[:, column], variance_slope_MD[:, column])
        np.testing.assert_allclose(ours, slopes, atol=1e-6)


def test_an_appended_cholesky_factor_equals_the_full_one():
    rows = some_rows(30)
    total_NN = kernel(rows.x_ND, rows.x_ND, 0.3) + KNOWN.noise * np.eye(30)
    head_NN = np.linalg.cholesky(total_NN[:22, :22])
    joint_NN = append_to_cholesky(head_NN, total_NN[:22, 22:], total_NN[22:, 22:])
    np.testing.assert_allclose(joint_NN, np.linalg.cholesky(total_NN), atol=1e-10)


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


def test_hyperparameters_survive_their_logarithms():
    back = Hyperparameters.from_log_vector(KNOWN.log_vector())
    np.testing.assert_allclose(back.log_vector(), KNOWN.log_vector(), rtol=1e-14)


def test_safe_cholesky_lifts_a_singular_matrix_and_leaves_a_good_one():
    singular_NN = np.ones((4, 4))
    chol_NN = safe_cholesky(singular_NN)
    np.testing.assert_allclose(chol_NN @ chol_NN.T, singular_NN, atol=1e-5)
    good_NN = np.eye(3) + 0.1
    np.testing.assert_array_equal(safe_cholesky(good_NN), np.linalg.cholesky(good_NN))


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
