"""The noise of a metric, from repeats and from curves."""

import numpy as np
import pytest

from hposvc.analysis.noise import of_curves, of_repeats


def test_equal_runs_give_the_pooled_deviation_and_an_interval_around_it():
    noise = of_repeats([[1.0, 3.0], [10.0, 12.0], [5.0]])
    assert noise.deviation == pytest.approx(2**0.5)
    assert (noise.freedom, noise.measured) == (2, True)
    low, high = noise.interval
    assert low == pytest.approx((2 * 2 / 5.991) ** 0.5, rel=1e-3)  # chi-square of 2 degrees
    assert low < noise.deviation < high


def test_a_trend_of_curves_is_no_noise_but_their_scatter_is():
    rng = np.random.default_rng(0)
    line = np.arange(12.0)
    assert of_curves([line, line * 3]).deviation == pytest.approx(0.0, abs=1e-12)
    noise = of_curves([line + rng.normal(0, 0.5, 12) for _ in range(400)])
    assert noise.deviation == pytest.approx(0.5, rel=0.15)
    assert not noise.measured
