"""The model of gains against textbook formulas, SciPy's density, and known functions."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_t

from hposvc.schedulers import pb2_model
from hposvc.schedulers.pb2_model import Bandit, DriftingKernel, Rows, fit


def rows(x, time):
    return Rows(np.reshape(np.array(x, float), (len(x), -1)), np.array(time, float))


def test_correlations_fall_with_the_square_of_the_distance_and_exponentially_with_time():
    model = DriftingKernel(length=0.5, drift=0.19, noise=0.1, scale=3.0)
    correlation = model.correlation(rows([0.0], [4]), rows([0.0, 0.0, 0.5, 1.0], [4, 6, 4, 3]))
    decay = math.sqrt(0.81)
    expected = [1.0, 0.81, math.exp(-0.5), math.exp(-2.0) * decay]
    np.testing.assert_allclose(correlation, [expected], rtol=1e-12)


def test_the_posterior_of_one_row_is_the_formula():
    model = DriftingKernel(length=0.5, drift=0.19, noise=0.25, scale=4.0)
    row = rows([0.0], [0])
    mean, deviation = Bandit(model, row, np.array([2.0]), row).predict(rows([0.5], [2]))
    k = math.exp(-0.5) * 0.81
    assert mean[0] == pytest.approx(k * 2.0 / 1.25)
    assert deviation[0] == pytest.approx(2.0 * math.sqrt(1 - k * k / 1.25))


def test_pending_rows_leave_the_mean_and_take_the_deviation():
    model = DriftingKernel(length=0.3, drift=0.05, noise=0.01, scale=1.0)
    done, pending, gains = rows([0.1, 0.3], [0, 1]), rows([0.8], [2]), np.array([1.0, -1.0])
    query = rows([0.8, 0.1], [2, 0])
    mean, deviation = Bandit(model, done, gains, done).predict(query)
    same, less = Bandit(model, done, gains, done.joined(pending)).predict(query)
    np.testing.assert_allclose(mean, same)
    assert less[0] < 0.11 < 0.9 < deviation[0]
    assert less[1] == pytest.approx(deviation[1], rel=0.05)


def density(x, gains, model):
    """Return the log-density of gains under a model, with the scale integrated out."""
    weight = pb2_model.SCALE_WEIGHT
    shape = model.noisy_correlation(x)
    value = multivariate_t.logpdf(gains, np.zeros(len(gains)), shape, df=weight)
    for number, (location, spread) in (
        (model.length, pb2_model.LENGTH_PRIOR),
        (model.noise, pb2_model.NOISE_PRIOR),
    ):
        value -= 0.5 * ((math.log(number) - location) / spread) ** 2
    return value


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 12), width=st.integers(1, 3))
def test_a_fit_is_the_most_probable_model_of_the_grid(seed, count, width):
    rng = np.random.default_rng(seed)
    x = Rows(rng.random((count, width)), rng.integers(0, 9, count).astype(float))
    gains = rng.standard_normal(count)
    fitted = fit(x, gains)
    best = max(
        density(x, gains, DriftingKernel(length, drift, noise, 1.0))
        for length, drift, noise in product(pb2_model.LENGTHS, pb2_model.DRIFTS, pb2_model.NOISES)
    )
    assert density(x, gains, fitted) == pytest.approx(best, abs=1e-8)


@pytest.mark.parametrize(("speed", "drifts"), [(0.0, False), (1.5, True)])
def test_a_fit_tells_whether_gains_drift(speed, drifts):
    rng = np.random.default_rng(1)
    x = Rows(rng.random((80, 1)), np.repeat(np.arange(10.0), 8))
    gains = np.sin(6 * x.x_ND[:, 0] + speed * x.time_N) + 0.05 * rng.standard_normal(80)
    assert (fit(x, gains).drift > 0) == drifts


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 20))
def test_repeated_rows_and_equal_gains_are_no_trouble(seed, count):
    rng = np.random.default_rng(seed)
    same = Rows(np.full((count, 2), 0.3), np.full(count, 4.0))
    model = Bandit.of(same, np.zeros(count), same)
    bound = model.bound(Rows(rng.random((50, 2)), rng.uniform(0, 99, 50)))
    assert np.isfinite(bound).all()
