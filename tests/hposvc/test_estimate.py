"""A value is shown with an interval that holds it. If these fail, people see `0.08 (0 to 0.07)`."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hposvc.analysis.forecast.forecast import interval
from hposvc.estimate import CONFIDENCE, Estimate

DRAWS = st.lists(st.floats(0, 1e6), min_size=2, max_size=60)


@given(DRAWS)
def test_the_mean_lies_within_the_interval_and_so_do_the_draws_that_it_claims(drawn):
    found = Estimate.of_draws(drawn)
    assert found.low <= np.mean(drawn) <= found.high
    held = [found.low <= value <= found.high for value in drawn]
    assert np.mean(held) >= CONFIDENCE - 2 / len(drawn)


def test_one_large_draw_of_many_widens_the_interval_up_to_the_mean():
    assert Estimate.of_draws([0.0] * 99 + [100.0]) == Estimate(1.0, 0.0, 1.0)


@given(DRAWS)
def test_a_forecast_is_the_mean_of_its_draws_within_its_interval(drawn):
    found = interval(drawn)
    assert found.value == pytest.approx(np.mean(drawn), rel=1e-9)
    assert found.low <= found.value <= found.high


def test_student_s_interval_holds_a_mean_as_often_as_it_says():
    samples = np.random.default_rng(0).normal(3.0, 1.0, (400, 5))
    means = [Estimate.of_mean(x.mean(), stats.sem(x), len(x) - 1) for x in samples]
    assert np.mean([mean.holds(3.0) for mean in means]) == pytest.approx(CONFIDENCE, abs=0.03)
    assert Estimate.of_mean(2.0, 0.0, 4) == Estimate(2.0, 2.0, 2.0)


def test_a_function_of_an_estimate_keeps_its_ends_in_order():
    assert Estimate(2.0, 1.0, 4.0).map(lambda value: -value) == Estimate(-2.0, -4.0, -1.0)
    assert not Estimate(2.0).map(math.exp).known


@pytest.mark.parametrize(
    ("estimate", "text", "sure"),
    [
        (Estimate(0.9123, 0.9054, 0.9191), "0.912 (0.905 to 0.919)", "(90 % sure: 0.905 to 0.919)"),
        (Estimate(0.97558, 0.97552, 0.97566), "0.97558 (0.97552 to 0.97566)", "0.97552 to"),
        (Estimate(2.0, 2.0, 2.0), "2", "2"),
        (Estimate(2.0), "2", "2"),
    ],
)
def test_an_estimate_is_written_with_its_interval_if_that_says_something(estimate, text, sure):
    assert estimate.text() == text
    assert sure in estimate.sure_text()


def test_what_is_unknown_or_infinite_is_null_in_json():
    assert Estimate(1.0).data() == {"mean": 1.0, "low": None, "high": None, "confidence": 0.9}
    assert json.loads(json.dumps(Estimate(math.inf).data("hours")))["hours"] is None
