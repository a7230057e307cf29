"""If these fail, healthy nodes are taken out of a cluster, or a slow one holds all others up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.watching.stragglers import slowest
from trainables.watching.straggling import FACTOR, MOST, REPORTS, Seen, seen, straggler

FACTORS = st.floats(1.0, MOST)


@given(st.floats(FACTOR + 0.01, MOST), st.integers(0, 63), st.lists(st.floats(0.98, 1.02)))
def test_a_rank_that_is_always_slower_by_as_much_is_found(factor, rank, noise):
    jitter = (noise + [1.0] * REPORTS)[:REPORTS]
    found = straggler([Seen(rank, factor * each) for each in jitter])
    if factor * 0.98 > FACTOR:
        assert found is not None
        assert found.rank == rank
        assert found.factor == pytest.approx(factor, rel=0.03)


@given(st.lists(st.tuples(st.integers(0, 7), FACTORS), max_size=20))
def test_nobody_is_blamed_for_what_several_ranks_take_turns_at(reports):
    found = straggler([Seen(rank, factor) for rank, factor in reports])
    last = [rank for rank, _ in reports[-REPORTS:]]
    if len(last) < REPORTS or len(set(last)) > 1:
        assert found is None


@given(st.lists(st.floats(1.0, FACTOR - 0.01), min_size=REPORTS, max_size=9))
def test_a_rank_that_is_slower_by_little_is_let_be(factors):
    assert straggler([Seen(1, factor) for factor in factors]) is None


def test_a_slow_moment_is_not_a_slow_rank():
    """As one that saves, or a neighbour that compiles: the next report may be another's."""
    assert straggler([Seen(1, factor) for factor in (1.0, 1.1, 9.0, 1.05, 8.0)]) is None
    assert straggler([Seen(1, factor) for factor in (1.1, 1.7, 30.0, 9.0, 1.2)]) is None


@given(st.lists(FACTORS, min_size=REPORTS, max_size=REPORTS), st.randoms())
def test_the_order_of_the_last_reports_makes_no_difference(factors, random):
    others = random.sample(factors, len(factors))
    one, other = (straggler([Seen(0, each) for each in some]) for some in (factors, others))
    assert one == other


@given(st.floats(1.0, 100.0), st.floats(1e-3, 10.0))
def test_of_two_ranks_the_one_is_held_against_the_other(factor, busy_s):
    score = slowest([busy_s, busy_s * factor]).score
    assert seen(1, score, 2).factor == pytest.approx(factor, rel=1e-6)


def test_of_more_ranks_one_is_held_against_the_median():
    assert seen(2, slowest([1.0, 1.0, 3.0, 1.0]).score, 4) == Seen(2, 3.0)


def test_a_rank_beside_one_that_does_nothing_has_a_factor_all_the_same():
    assert seen(0, slowest([1.0, 0.0]).score, 2).factor == MOST
