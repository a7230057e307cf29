import math

import pytest

from searchers.searcher import Observation, call_rng


@pytest.mark.parametrize(
    ("excess", "exceeded"),
    [((), 0), ((-1.0, 0.0), 0), ((-5.0, 2.0, 1.0), 3.0), ((-1.0, math.nan), math.inf)],
)
def test_limits_are_exceeded_by_the_sum_and_unknown_ones_are_not_kept(excess, exceeded):
    seen = Observation("t1", {}, excess=excess)
    assert seen.exceeded == exceeded
    assert seen.keeps_limits is (exceeded == 0)


def test_each_call_has_numbers_of_its_own_which_come_again():
    draws = {(seed, n): call_rng(seed, n).random() for seed in range(3) for n in range(3)}
    assert len(set(draws.values())) == len(draws)
    assert call_rng(1, 2).random() == draws[1, 2]
