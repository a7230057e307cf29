"""If these fail, the healthy machine is taken out of the cluster, and the slow one stays."""

import torch

from trainables.monitoring.stragglers import Straggler, busy_seconds, gather_busy_seconds, slowest


def test_the_score_is_the_slowest_over_the_median():
    assert slowest([1.0, 1.0, 3.0, 1.0]) == Straggler(rank=2, score=3.0)


def test_to_wait_for_others_is_not_to_be_busy():
    times = {"data": 1.0, "forward": 2.0, "backward": 4.0, "communication": 8.0, "update": 15.0}
    assert busy_seconds(times) == 7.0


def test_without_a_group_a_rank_knows_itself():
    assert gather_busy_seconds(0.25, torch.device("cpu")) == [0.25]
