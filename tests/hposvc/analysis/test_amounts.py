"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.analysis.amounts import cost_range, cost_text, figures


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0.97552, 0.97558, 0.97566), ["0.97552", "0.97558", "0.97566"]),
        ((0.905, 0.912, 0.919), ["0.905", "0.912", "0.919"]),
        ((-0.00192, 0.000392, 0.00455), ["-0.00192", "0.000392", "0.00455"]),
        ((2.0, 2.0, 2.0), ["2", "2", "2"]),
        ((0.0, 0.0, 0.0), ["0", "0", "0"]),
    ],
)
def test_intervals_show_where_they_end(values, words):
    assert figures(*values) == words


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=3))
def test_figures_are_near_their_values(values):
    near = max(values) - min(values) or max(map(abs, values)) / 100
    for value, word in zip(values, figures(*values), strict=True):
        assert abs(float(word) - value) <= near


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (1200.0, "1,200 worker-hours"),
        (1.0, "1 worker-hour"),
        (0.05, "3 worker-minutes"),
        (1 / 60, "1 worker-minute"),
        (1 / 3600, "1 worker-second"),
        (0.0, "0 worker-hours"),
    ],
)
def test_one_of_a_unit_is_no_plural(hours, words):
    assert cost_text(hours, "worker-hours") == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.0, 2.3 / 3600, "0 to 2.3 worker-seconds"),
        (3.8 / 60, 0.203, "0.0633 to 0.203 worker-hours"),
        (0.151, 0.375, "0.151 to 0.375 worker-hours"),
        (0.05, 0.0501, ""),
    ],
)
def test_a_range_has_one_unit(low, high, words):
    assert cost_range(low, high, "worker-hours") == words
