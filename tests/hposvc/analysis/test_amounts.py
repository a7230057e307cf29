"""Numbers as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.analysis.amounts import figures


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
