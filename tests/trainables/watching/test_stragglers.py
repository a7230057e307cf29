"""If these fail, the healthy machine is taken out of the cluster, and the slow one stays."""

import pytest
import torch

from trainables.watching.stragglers import Straggler, busy, exchange, slowest
from trainables.watching.throughput import throughput


def test_the_score_is_the_slowest_over_the_median():
    assert slowest([1.0, 1.0, 3.0, 1.0]) == Straggler(rank=2, score=3.0)


def test_equal_ranks_have_no_straggler():
    assert slowest([0.2, 0.2]).score == 1.0


def test_one_rank_is_its_own_median():
    assert slowest([0.5]) == Straggler(0, 1.0)


def test_ranks_that_timed_nothing_have_no_straggler():
    assert slowest([0.0, 0.0]).score == 1.0


def test_to_wait_for_others_is_not_to_be_busy():
    times = {"data": 1.0, "forward": 2.0, "backward": 4.0, "communication": 8.0, "update": 15.0}
    assert busy(times) == 7.0


def test_without_a_group_a_rank_knows_itself():
    assert exchange(0.25, torch.device("cpu")) == [0.25]


def test_rates_are_per_second():
    rates = throughput(samples=100, elements=5000, seconds=2.0)
    assert rates == {"perf/samples_per_s": 50.0, "perf/elements_per_s": 2500.0}


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_in_no_time_there_is_no_rate(seconds):
    assert throughput(100, 100, seconds) == {}
