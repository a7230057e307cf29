"""The model and the acquisition compared with scikit-learn, mpmath and central differences.

Rows come from random spaces with integers, categories and conditions, so that columns repeat,
coincide and stay constant as they do in a sweep.
"""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel

from searchers.gp.acquisition import LogExpectedImprovement, log_h
from searchers.gp.encoding import Encoding
from searchers.gp.kernels import matern52, squared_distances
from searchers.gp.model import (
    JITTER,
    Hyperparameters,
    Posterior,
    Rows,
    append_to_cholesky,
    dimension_scaled_prior,
    negative_log_posterior,
    safe_cholesky,
    short_prior,
)

LENGTHSCALES = st.floats(math.log(0.05), math.log(20.0)).map(math.exp)
NOISES = st.floats(math.log(1e-4), math.log(0.5)).map(math.exp)
SCALES = st.floats(math.log(0.1), math.log(10.0)).map(math.exp)
QUERIES = 7
STEP = 1e-4


@st.composite
def _cases(draw, spaces):
    """Draw rows of a random space, hyperparameters, and queries of the same space."""
    space = draw(spaces.filter(lambda space: space.searched))
    encoding = Encoding.of(space)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 30))
    points = encoding.snap(rng.random((count + QUERIES, encoding.parameters)))
    x_ND = encoding.columns_of(points)
    lengthscales = draw(st.tuples(*[LENGTHSCALES] * encoding.parameters))
    hyperparameters = Hyperparameters(lengthscales, draw(NOISES), draw(SCALES))
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    rows = Rows(x_ND[:count], rng.standard_normal(count), encoding.parameter_D, share)
    return rows, hyperparameters, x_ND[count:]


@pytest.fixture(scope="module")
def cases(spaces):
    return _cases(spaces)


class Columns(Kernel):
    """A kernel of scikit-learn's on some of the columns."""

    def __init__(self, kernel, columns):
        self.kernel = kernel
        self.columns = columns

    def __call__(self, X, Y=None, eval_gradient=False):
        return self.kernel(X[:, self.columns], None if Y is None else Y[:, self.columns])

    def diag(self, X):
        return self.kernel.diag(X[:, self.columns])

    def is_stationary(self):
        return True


def rival(rows, known):
    """Return scikit-learn's process with the same kernel, noise and jitter."""
    count = len(known.lengthscales)
    lengthscale_D = np.array(known.lengthscales)[rows.parameter_D]
    kernel = WhiteKernel(known.noise)
    if rows.additive_weight < 1.0:
        joint = ConstantKernel(known.scale * (1.0 - rows.additive_weight))
        kernel += joint * Matern(lengthscale_D, nu=2.5)
    for parameter, lengthscale in enumerate(known.lengthscales if rows.additive_weight else ()):
        matern = Matern(lengthscale / math.sqrt(count), nu=2.5)
        columns = np.flatnonzero(rows.parameter_D == parameter)
        kernel += ConstantKernel(known.scale * rows.additive_weight / count) * Columns(
            matern, columns
        )
    return GaussianProcessRegressor(kernel, alpha=JITTER, optimizer=None).fit(
        rows.x_ND, rows.loss_N
    )


def total(rows, known):
    x_ND = rows.x_ND / np.array(known.lengthscales)[rows.parameter_D]
    k_NN = known.scale * rows.kernel(x_ND, x_ND)
    k_NN[np.diag_indices_from(k_NN)] = known.scale + known.noise + JITTER
    return k_NN


@given(data=st.data())
def test_posterior_equals_scikit_learn(cases, data):
    """Otherwise proposals follow wrong means and variances."""
    rows, hyperparameters, query_MD = data.draw(cases)
    theirs_M, their_deviation_M = rival(rows, hyperparameters).predict(query_MD, return_std=True)
    mean_M, variance_M = Posterior.of(rows, hyperparameters).predict(query_MD)
    np.testing.assert_allclose(mean_M, theirs_M, rtol=1e-8, atol=1e-8)
    # Their variance is of a noisy observation.
    their_variance_M = np.maximum(their_deviation_M**2 - hyperparameters.noise, 0.0)
    np.testing.assert_allclose(variance_M, their_variance_M, rtol=1e-8, atol=1e-8)


@given(data=st.data())
def test_marginal_likelihood_equals_scikit_learn(cases, data):
    """Otherwise the fit does not maximize the evidence."""
    rows, hyperparameters, _ = data.draw(cases)
    prior = dimension_scaled_prior(len(hyperparameters.lengthscales))
    theta_T = hyperparameters.log_vector()
    value, _ = negative_log_posterior(theta_T, rows, prior)
    penalty = 0.5 * np.sum(((theta_T - prior.mean_T) / prior.deviation_T) ** 2)
    likelihood = penalty - value - 0.5 * len(rows) * math.log(2.0 * math.pi)
    assert likelihood == pytest.approx(
        rival(rows, hyperparameters).log_marginal_likelihood(), rel=1e-8, abs=1e-8
    )


@given(data=st.data())
@pytest.mark.parametrize("prior_of", [dimension_scaled_prior, short_prior])
def test_gradient_of_the_log_posterior_equals_central_differences(cases, prior_of, data):
    """Otherwise L-BFGS stops away from an optimum."""
    rows, hyperparameters, _ = data.draw(cases)
    # With less noise, contradicting losses give values whose rounding hides their differences.
    hyperparameters = replace(hyperparameters, noise=max(hyperparameters.noise, 0.01))
    prior, theta_T = prior_of(len(hyperparameters.lengthscales)), hyperparameters.log_vector()
    _, gradient_T = negative_log_posterior(theta_T, rows, prior)
    slopes_T = [
        negative_log_posterior(theta_T + step_T, rows, prior)[0]
        - negative_log_posterior(theta_T - step_T, rows, prior)[0]
        for step_T in STEP * np.eye(len(theta_T))
    ]
    rounding = 1e-6 * max(1.0, np.abs(gradient_T).max())
    np.testing.assert_allclose(gradient_T, np.array(slopes_T) / (2.0 * STEP), atol=rounding)


@given(data=st.data())
def test_gradients_of_a_prediction_equal_central_differences(cases, data):
    """Otherwise the ascent of the acquisition goes the wrong way, in some column."""
    rows, hyperparameters, query_MD = data.draw(cases)
    posterior = Posterior.of(rows, hyperparameters)
    query_MD = query_MD + 0.013  # off the rows, where the third derivative jumps
    mean_M, variance_M, *slopes = posterior.predict_with_gradient(query_MD)
    np.testing.assert_allclose(
        (mean_M, variance_M), posterior.predict(query_MD), rtol=1e-9, atol=1e-10
    )
    for column, step_D in enumerate(STEP * np.eye(query_MD.shape[1])):
        up, down = posterior.predict(query_MD + step_D), posterior.predict(query_MD - step_D)
        differences = (np.array(up) - np.array(down)) / (2.0 * STEP)
        ours = [slope_MD[:, column] for slope_MD in slopes]
        # The error of a difference grows with the steepest slope: cancellation takes its digits.
        atol = 1e-5 * max(10.0, np.abs(differences).max())
        np.testing.assert_allclose(ours, differences, rtol=1e-4, atol=atol)


@given(data=st.data())
def test_an_appended_cholesky_factor_equals_a_fresh_one(cases, data):
    """Otherwise predictions drift with every trial that is appended to a factor."""
    rows, hyperparameters, _ = data.draw(cases)
    total_NN = total(rows, hyperparameters)
    head = data.draw(st.integers(0, len(rows) - 1))
    joint_NN = append_to_cholesky(
        np.linalg.cholesky(total_NN[:head, :head]), total_NN[:head, head:], total_NN[head:, head:]
    )
    np.testing.assert_allclose(joint_NN, np.linalg.cholesky(total_NN), rtol=1e-8, atol=1e-8)


@given(data=st.data())
def test_a_row_at_a_time_gives_the_posterior_of_all_at_once(cases, data):
    """Otherwise the predictions of pending trials depend on the order in which they came."""
    rows, hyperparameters, query_MD = data.draw(cases)
    before = Posterior.of(rows, hyperparameters)
    together = before.fantasize(query_MD)
    one_by_one = before
    for x_D in query_MD:
        one_by_one = one_by_one.fantasize(x_D[None])
    asked_MD = query_MD + 0.05
    np.testing.assert_allclose(
        together.predict(asked_MD), one_by_one.predict(asked_MD), rtol=1e-7, atol=1e-7
    )


@given(st.integers(2, 60), st.floats(-9.0, 0.0), st.integers(0, 99))
def test_rows_that_nearly_coincide_have_a_factor_near_their_matrix(count, exponent, seed):
    """Otherwise a sweep that has converged on one point loses its model."""
    x_ND = 10.0**exponent * np.random.default_rng(seed).random((count, 3))
    k_NN = matern52(squared_distances(x_ND, x_ND))
    chol_NN = safe_cholesky(k_NN)
    assert np.isfinite(chol_NN).all()
    np.testing.assert_allclose(chol_NN @ chol_NN.T, k_NN, atol=1e-5)


def exact_log_h(z):
    """Return log(phi(z) + z Phi(z)) and its derivative, to more digits than cancel."""
    with mpmath.workdps(80):
        z = mpmath.mpf(z)
        below = mpmath.erfc(-z / mpmath.sqrt(2)) / 2
        h = mpmath.npdf(z) + z * below
        return mpmath.log(h), below / h


@settings(max_examples=200)
@given(st.floats(-1e6, 1e3) | st.floats(-300.0, 10.0))
def test_log_h_has_nine_digits_everywhere(z):
    """An error of 1e-9 in the logarithm is a relative error of 1e-9 in the improvement."""
    value, slope = (number.item() for number in log_h(np.array([z])))
    exact, exact_slope = exact_log_h(z)
    assert abs(value - exact) <= 1e-9 * max(1.0, abs(exact))
    assert abs(slope - exact_slope) <= 1e-9 * abs(exact_slope)


@pytest.mark.parametrize("exponent", [-1, -100, -3_000, -300_000])
def test_log_expected_improvement_has_nine_digits_however_small_it_is(exponent):
    """Otherwise candidates cannot be told apart once improvement has become unlikely."""
    rng = np.random.default_rng(0)
    hyperparameters = Hyperparameters((0.3, 0.6), noise=1e-4, scale=1.0)
    rows = Rows(rng.random((12, 2)), rng.standard_normal(12), np.arange(2), 0.3)
    posterior, query_MD = Posterior.of(rows, hyperparameters), rng.random((5, 2))
    mean_M, variance_M = posterior.predict(query_MD)
    far = math.sqrt(2.0 * math.log(10.0) * -exponent)
    best = float(np.min(mean_M - far * np.sqrt(variance_M)))
    value_M = LogExpectedImprovement(posterior, best)(query_MD)
    with mpmath.workdps(80):
        for value, mean, variance in zip(value_M, mean_M, variance_M, strict=True):
            deviation = mpmath.sqrt(mpmath.mpf(variance))
            z = (mpmath.mpf(best) - mpmath.mpf(mean)) / deviation
            exact = mpmath.log(deviation) + exact_log_h(z)[0]
            assert abs(value - exact) <= 1e-9 * max(1.0, abs(exact))
    assert value_M.max() < exponent * math.log(10.0) * 0.5
