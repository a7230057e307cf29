from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import make_spec

from hposvc.events import Finished
from hposvc.spec.registry import PlugIn
from hposvc.state.sweep import SweepState
from hposvc.views.formatting import BARS, NOT_FINITE, evenly_spaced, sparkline, why_ended

LOSSES = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8)


def test_a_falling_loss_falls():
    assert sparkline([7, 6, 5, 4, 3, 2, 1]) == BARS[::-1]


@given(LOSSES)
@settings(max_examples=100, deadline=None)
def test_a_sparkline_has_a_character_a_point(losses):
    drawn = sparkline(losses)
    assert len(drawn) == len(losses)
    assert set(drawn) <= {*BARS, NOT_FINITE}


@given(st.integers(1, 10_000))
@settings(max_examples=100, deadline=None)
def test_thinning_keeps_the_ends_and_the_order(count):
    places = evenly_spaced(count)
    assert len(places) <= 8
    assert (places[0], places[-1]) == (0, count - 1)
    assert places == sorted(set(places))


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("grid", "every configuration has been tried"),
        ("mine:Wander", "search.method mine:Wander proposes no more"),
    ],
)
def test_the_end_of_a_search_names_a_user_s_own_method(method, why):
    spec = replace(make_spec(), search=PlugIn(method))
    state = SweepState(spec)
    state.apply(Finished(1.0, "COMPLETED", "space"))
    assert why_ended(state) == why
