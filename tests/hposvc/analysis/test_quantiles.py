"""A value is shown with an interval that holds it. If these fail, people see `0.08 (0 to 0.07)`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.analysis.forecast.forecast import interval
from hposvc.analysis.judgement import Expected
from hposvc.analysis.quantiles import central

DRAWS = st.lists(st.floats(0, 1e6), min_size=2, max_size=60)


@given(DRAWS, st.floats(0.5, 0.99))
def test_the_mean_lies_within_the_interval_and_so_do_the_draws_that_it_claims(drawn, level):
    low, high = central(drawn, level, float(np.mean(drawn)))
    assert low <= np.mean(drawn) <= high
    assert np.mean([low <= value <= high for value in drawn]) >= level - 2 / len(drawn)


def test_one_large_draw_of_many_widens_the_interval_up_to_the_mean():
    drawn = [0.0] * 99 + [100.0]
    assert central(drawn, 0.9, 1.0) == (0.0, 1.0)
    assert Expected.of(np.array(drawn)) == Expected(1.0, 0.0, 1.0)


@given(DRAWS)
def test_a_forecast_is_the_mean_of_its_draws_within_its_interval(drawn):
    found = interval(drawn)
    assert found.expected == pytest.approx(np.mean(drawn), rel=1e-9)
    assert found.low <= found.expected <= found.high
