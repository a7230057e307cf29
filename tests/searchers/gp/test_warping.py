"""Output maps keep the order of losses, come back exactly, and survive anything finite."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import yeojohnson

from searchers.gp.warping import TailCompression, YeoJohnson, spans_decades, standardized

FITS = [TailCompression.fit, YeoJohnson.fit]


@pytest.mark.parametrize("fit", FITS)
def test_outputs_are_standardized_in_order_and_come_back(fit):
    loss_N = np.random.default_rng(0).lognormal(size=60)
    warp = standardized(fit, loss_N)
    output_N = warp.forward(loss_N)
    assert output_N.mean() == pytest.approx(0.0, abs=1e-12)
    assert output_N.std() == pytest.approx(1.0)
    np.testing.assert_array_equal(np.argsort(output_N), np.argsort(loss_N))
    np.testing.assert_allclose(warp.backward(output_N), loss_N, rtol=1e-6)


def test_tail_compression_is_affine_below_the_median_and_a_logarithm_above():
    warp = TailCompression.fit(np.array([0.0, 1.0, 2.0, 3.0, 1000.0]))
    assert (warp.centre, warp.scale) == (2.0, 1.0)
    np.testing.assert_allclose(
        warp.forward(np.array([0.0, 2.0, 1000.0])), [-2.0, 0.0, np.log(999.0)]
    )


def test_yeo_johnson_equals_scipy():
    loss_N = np.random.default_rng(1).gamma(2.0, size=50)
    known_N, known_power = yeojohnson((loss_N - np.median(loss_N)) / loss_N.std())
    warp = YeoJohnson.fit(loss_N)
    assert warp.power == pytest.approx(known_power)
    np.testing.assert_allclose(warp.forward(loss_N), known_N)


@pytest.mark.parametrize("power", [-2.0, 0.0, 0.5, 1.0, 2.0, 3.0])
def test_yeo_johnson_comes_back_at_every_kind_of_power(power):
    warp = YeoJohnson(centre=0.3, scale=2.0, power=power)
    loss_M = np.linspace(-3.0, 4.0, 15)
    np.testing.assert_allclose(warp.backward(warp.forward(loss_M)), loss_M, atol=1e-9)


@pytest.mark.parametrize("fit", FITS)
def test_a_divergent_trial_leaves_the_order_of_the_good_ones_visible(fit):
    good_N = np.random.default_rng(2).normal(0.5, 0.05, size=30)
    output_N = standardized(fit, np.append(good_N, 1e30)).forward(good_N)
    assert np.ptp(output_N) > 0.5


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("constant", [0.0, 3.5, -1e300])
def test_equal_losses_map_to_zero(fit, constant):
    np.testing.assert_array_equal(
        standardized(fit, np.full(6, constant)).forward(np.full(6, constant)), 0.0
    )


@pytest.mark.parametrize("fit", FITS)
def test_logarithms_tell_low_losses_apart_and_come_back(fit):
    loss_N = 10.0 ** np.random.default_rng(3).uniform(-12, 2, size=40)
    assert spans_decades(loss_N)
    plain, warp = standardized(fit, loss_N), standardized(fit, loss_N, in_logarithms=True)
    lowest_N = np.sort(loss_N)[:5]
    assert np.ptp(plain.forward(lowest_N)) < 1e-3 < 0.1 < np.ptp(warp.forward(lowest_N))
    np.testing.assert_array_equal(np.argsort(warp.forward(loss_N)), np.argsort(loss_N))
    np.testing.assert_allclose(warp.backward(warp.forward(loss_N)), loss_N, rtol=1e-6)
    assert np.isfinite(warp.backward(np.array([-1e3, -5.0, 5.0, 1e3]))).all()


@pytest.mark.parametrize("losses", [[0.0, 1.0, 2.0], [-1.0, 1e6, 1e6], [0.1, 1.0, 50.0]])
def test_losses_that_are_not_positive_or_near_each_other_span_no_decades(losses):
    assert not spans_decades(np.array(losses))


@settings(max_examples=100, deadline=None)
@given(
    losses=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30),
    which=st.sampled_from(FITS),
)
def test_any_finite_losses_have_finite_outputs_in_order(losses, which):
    loss_N = np.array(losses)
    warp = standardized(which, loss_N)
    output_N = warp.forward(loss_N)
    assert np.isfinite(output_N).all()
    assert (np.diff(output_N[np.argsort(loss_N)]) >= -1e-9).all()
    assert np.isfinite(warp.backward(np.array([-1e3, -5.0, 0.0, 5.0, 1e3]))).all()
