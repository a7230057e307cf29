"""If these fail, healthy nodes are taken out of a cluster, or a slow one holds all others up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.monitoring.slow_ranks import (
    FACTOR,
    MOST,
    REPORTS,
    SlowestRank,
    slowest_rank,
    straggler,
)
from trainables.monitoring.stragglers import slowest

FACTORS = st.floats(1.0, MOST)


@given(st.floats(FACTOR + 0.01, MOST), st.integers(0, 63), st.lists(st.floats(0.98, 1.02)))
def test_a_rank_that_is_always_slower_by_as_much_is_found(factor, rank, noise):
    jitter = (noise + [1.0] * REPORTS)[:REPORTS]
    slow = straggler([SlowestRank(rank, factor * ratio) for ratio in jitter])
    if factor * 0.98 > FACTOR:
        assert slow is not None
        assert slow.rank == rank
        assert slow.factor == pytest.approx(factor, rel=0.03)


@given(st.lists(st.tuples(st.integers(0, 7), FACTORS), max_size=20))
def test_nobody_is_blamed_for_what_several_ranks_take_turns_at(reports):
    slow = straggler([SlowestRank(rank, factor) for rank, factor in reports])
    last = [rank for rank, _ in reports[-REPORTS:]]
    if len(last) < REPORTS or len(set(last)) > 1:
        assert slow is None


@given(st.lists(st.floats(1.0, FACTOR - 0.01), min_size=REPORTS, max_size=9))
def test_a_rank_that_is_slower_by_little_is_let_be(factors):
    assert straggler([SlowestRank(1, factor) for factor in factors]) is None


@given(st.floats(1.0, 100.0), st.floats(1e-3, 10.0))
def test_of_two_ranks_the_one_is_held_against_the_other(factor, busy_s):
    score = slowest([busy_s, busy_s * factor])["perf/straggler"]
    assert slowest_rank(1, score, 2).factor == pytest.approx(factor, rel=1e-6)


def test_a_rank_beside_one_that_does_nothing_has_a_factor_all_the_same():
    assert slowest_rank(0, slowest([1.0, 0.0])["perf/straggler"], 2).factor == MOST
