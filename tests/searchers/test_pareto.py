from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.pareto import dominates, fronts, hypervolume, order, spread_order, spreading

LEVELS = st.integers(0, 4)  # few, so that equal values and equal results are common


@st.composite
def tables(draw, most=12):
    width = draw(st.integers(2, 4))
    rows = draw(st.lists(st.tuples(*[LEVELS] * width), max_size=most))
    return np.array(rows, dtype=float).reshape(len(rows), width)


def test_a_result_dominates_where_it_is_nowhere_worse_and_somewhere_better():
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((0, 3), (1, 2))
    assert fronts([[1, np.nan], [1, 2]]).tolist() == [1, 0]  # NaN is as bad as can be


@given(tables())
def test_the_fronts_are_peeled_off_as_the_definition_says(losses):
    """Another ranking would stop trials that nothing beats."""
    left, level = set(range(len(losses))), 0
    results = [tuple(row) for row in losses]
    expected = np.zeros(len(losses))
    while left:
        front = {i for i in left if not any(dominates(results[j], results[i]) for j in left)}
        expected[list(front)] = level
        left, level = left - front, level + 1
    assert fronts(losses).tolist() == expected.tolist()


@settings(max_examples=50)
@given(tables())
def test_the_hypervolume_is_the_number_of_unit_cells_that_are_dominated(losses):
    """A wrong volume would misjudge every comparison of fronts."""
    width = losses.shape[1]
    corners = np.stack(np.meshgrid(*[np.arange(4)] * width, indexing="ij"), -1).reshape(-1, width)
    covered = [any((loss <= corner).all() for loss in losses) for corner in corners]
    assert hypervolume(losses, np.full(width, 4.0)) == sum(covered)


def test_the_hypervolume_of_a_known_front_in_three_objectives():
    """Two boxes less their intersection, computed by hand."""
    losses = [[0.0, 0.0, 2.0], [1.0, 1.0, 0.0]]
    assert hypervolume(losses, [2.0, 2.0, 3.0]) == pytest.approx(4.0 + 3.0 - 1.0)


def test_results_outside_the_reference_and_not_finite_ones_cover_nothing():
    assert hypervolume([[0.0, 5.0], [np.nan, 0.0], [np.inf, 0.0]], [1.0, 1.0]) == 0.0
    assert hypervolume([], [1.0, 1.0]) == 0.0
    assert hypervolume([[-1e300, -1e300]], [1e300, 1e300]) == np.inf
    with pytest.raises(ValueError, match=r"reference is \[1.0\]; give one number for each of 2"):
        hypervolume([[0.0, 0.5]], [1.0])


@given(tables())
def test_a_dominated_result_never_comes_before_one_of_a_better_front(losses):
    places = order(losses)
    assert sorted(places) == list(range(len(losses)))
    assert (np.diff(fronts(losses)[places]) >= 0).all()


def test_every_beginning_of_the_spread_order_covers_the_front():
    """Sorting by one objective instead would keep one end of the front alone."""
    x = np.linspace(0.0, 1.0, 21)
    front = np.column_stack([x, 1e6 * (1 - x)])  # objectives of very different scales
    assert set(spread_order(front)[:3]) >= {0, 20}
    gaps = np.diff(np.sort(x[spread_order(front)[:6]]))
    assert gaps.max() <= 0.3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1.7e308])
def test_values_of_any_size_have_an_order(bad):
    """A warning or a NaN here would end a sweep at a rung."""
    with np.errstate(all="raise"):
        places = order([[bad, 1.0], [0.0, 2.0], [1.0, bad], [1.0, 1.0], [1.0, 1.0]])
    assert sorted(places) == [0, 1, 2, 3, 4]


def spread_by_definition(front):
    """Return the middle, then always the furthest from all before it, computed afresh each time."""
    span = np.ptp(front, axis=0)
    scaled = (front - front.min(axis=0)) / np.where(span > 0, span, 1.0)
    chosen = [int(scaled.sum(axis=1).argmin())]
    while len(chosen) < len(front):
        apart = np.linalg.norm(scaled[:, None] - scaled[chosen], axis=2).min(axis=1)
        apart[chosen] = -1.0
        chosen.append(int(apart.argmax()))
    return chosen


@given(tables(30), st.integers(0, 30))
def test_any_beginning_of_the_spread_is_found_without_the_rest_and_is_the_furthest_next(
    front, most
):
    """Another order would promote other trials in a sweep that is replayed."""
    expected = spread_by_definition(front) if len(front) else []
    assert spread_order(front).tolist() == expected
    assert list(islice(spreading(front), most)) == expected[:most]
