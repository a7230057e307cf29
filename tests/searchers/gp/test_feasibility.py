"""Probabilities of success and of kept limits, against sampling; learning from few failures."""

import numpy as np
import pytest
from gradients import check_gradient
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from searchers.gp.feasibility import (
    LogProbabilityBelow,
    labels_of_excess,
    labels_of_failures,
    prior_of_labels,
)
from searchers.gp.fits import MODELS
from searchers.gp.model import Hyperparameters, Posterior, Rows, dimension_scaled_prior, fit


@pytest.fixture
def term():
    x_ND = np.random.default_rng(0).random((20, 3))
    output_N = np.sin(5.0 * x_ND[:, 0]) + x_ND[:, 1]
    hyperparameters = Hyperparameters((0.3, 0.6, 2.0), noise=1e-2, scale=1.0)
    return LogProbabilityBelow(
        Posterior.of(Rows(x_ND, output_N, np.arange(3), 0.3), hyperparameters), 0.4
    )


def success(x_ND, failed_N):
    """Return the term learned from failures."""
    labels = labels_of_failures(failed_N)
    rows = Rows(x_ND, labels.output_N, np.arange(x_ND.shape[1]), 0.3)
    prior = prior_of_labels(dimension_scaled_prior(x_ND.shape[1]))
    fitted = fit(rows, prior, None, np.random.default_rng(0))
    return LogProbabilityBelow(Posterior.of(rows, fitted), labels.threshold)


def test_the_value_is_the_share_of_noisy_outcomes_below_the_threshold(term):
    query_MD = np.random.default_rng(1).random((5, 3))
    mean_M, variance_M = term.posterior.predict(query_MD)
    draws = np.random.default_rng(2).standard_normal((200_000, 1))
    share_M = (mean_M + np.sqrt(variance_M + 1e-2) * draws <= 0.4).mean(axis=0)
    np.testing.assert_allclose(np.exp(term(query_MD)), share_M, atol=5e-3)


def test_the_gradient_equals_central_differences(term):
    check_gradient(term, np.random.default_rng(3).random((20, 3)))


@pytest.mark.parametrize("threshold", [-1e3, -1e6, 1e6])
def test_the_tails_stay_finite(term, threshold):
    """Otherwise a search that starts where no limit can be kept could not leave."""
    far = LogProbabilityBelow(term.posterior, threshold)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        value_M, gradient_MD = far.with_gradient(np.full((1, 3), 0.4))
    assert np.isfinite(value_M).all()
    assert np.isfinite(gradient_MD).all()
    if threshold < 0.0:
        assert np.abs(gradient_MD).max() > 1.0


@pytest.mark.parametrize("failed", [[], [False] * 5, [True] * 5])
def test_there_is_nothing_to_learn_from_outcomes_that_are_all_alike(failed):
    assert labels_of_failures(np.array(failed, dtype=bool)) is None


def test_ten_failures_teach_where_memory_ends():
    """Batch times width beyond a limit is a straight edge in logarithms, oblique to both."""
    shares = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x_ND, query_MD = rng.random((24, 4)), rng.random((1000, 4))
        ends_N = x_ND[:, 0] + x_ND[:, 1] > 1.2
        margin_M = query_MD[:, 0] + query_MD[:, 1] - 1.2
        works_M = np.exp(success(x_ND, ends_N)(query_MD)) > 0.5
        shares.append((works_M == (margin_M < 0.0))[np.abs(margin_M) > 0.15].mean())
        assert ends_N.sum() <= 12
    assert np.mean(shares) > 0.93
    assert min(shares) > 0.85


def test_failures_that_nothing_explains_rule_nothing_out():
    """Otherwise the failures of a few nodes would close good regions."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x_ND, failed_N = rng.random((40, 4)), rng.permutation(np.arange(40) < 4)
        probability_M = np.exp(success(x_ND, failed_N)(rng.random((500, 4))))
        assert np.median(probability_M) > 0.85
        assert np.quantile(probability_M, 0.05) > 0.05


def test_far_from_all_trials_the_share_of_failures_is_expected():
    rng = np.random.default_rng(6)
    labels = labels_of_failures(np.arange(20) < 5)
    hyperparameters = Hyperparameters((0.05, 0.05), noise=1e-2, scale=1.0)
    rows = Rows(0.1 * rng.random((20, 2)), labels.output_N, np.arange(2), 0.3)
    far = LogProbabilityBelow(Posterior.of(rows, hyperparameters), labels.threshold)(
        np.ones((1, 2))
    )
    expected = norm.cdf(labels.threshold / np.sqrt(1.01))
    assert np.exp(far).item() == pytest.approx(expected, rel=1e-6)
    assert 0.6 < expected < 0.9


finite = st.floats(-1e300, 1e300)


@given(st.lists(finite, min_size=1, max_size=12), st.sampled_from(MODELS))
def test_a_limit_keeps_its_sign_however_its_excess_is_scaled(excess, model):
    """Otherwise trials that break a limit would count as keeping it."""
    excess_N = np.array(excess)
    labels = labels_of_excess(model.warp, excess_N)
    assert np.isfinite(labels.output_N).all()
    slack = 1e-9 * (1.0 + abs(labels.threshold))
    assert (labels.output_N[excess_N <= 0.0] <= labels.threshold + slack).all()
    assert (labels.output_N[excess_N >= 0.0] >= labels.threshold - slack).all()


@given(st.floats(1e-3, 1e-1), st.floats(1e-3, 1e3), st.sampled_from(MODELS))
def test_a_trial_over_a_limit_far_from_most_trials_is_told_from_one_below(spread, over, model):
    """As when most models are tiny, and the limit is the memory of a GPU."""
    excess_N = np.array([*np.linspace(-1e3, -1e3 + spread, 9), over])
    labels = labels_of_excess(model.warp, excess_N)
    assert labels.output_N[-1] > labels.threshold > labels.output_N[:-1].max()
