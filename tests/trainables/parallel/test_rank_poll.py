"""Agreement of ranks on a condition; several ranks are stood for by a reduction of our own."""

from types import SimpleNamespace

import pytest
import torch

from trainables.parallel import rank_poll
from trainables.parallel.rank_poll import RankPoll


def poll(ranks=1, rank=0):
    worker = SimpleNamespace(world_size=ranks, rank=rank, device=torch.device("cpu"))
    return RankPoll(worker, pause_s=2.0)


def test_a_single_rank_decides_for_itself():
    alone = poll()
    assert [alone.holds(here) for here in (False, True)] == [False, True]


@pytest.fixture
def reductions(monkeypatch):
    """Stand for another rank with the condition, and with a patience of 3; count the exchanges."""
    exchanged = []

    def maximum(tensor, op):
        exchanged.append(tensor.tolist())
        tensor.copy_(torch.maximum(tensor, torch.tensor([len(exchanged) > 1, 3])))

    monkeypatch.setattr(rank_poll.dist, "all_reduce", maximum)
    return exchanged


def test_ranks_agree_where_the_condition_holds_on_any(reductions):
    other = poll(ranks=2, rank=1)
    assert [other.holds(False) for _ in range(4)] == [False, False, False, True]
    assert len(reductions) == 2, "three updates pass from one exchange to the next"


def test_only_rank_0_sets_the_pace(reductions):
    poll(ranks=2, rank=1).holds(False)
    poll(ranks=2, rank=0).holds(False)
    assert reductions[0] == [0, 0]
    assert reductions[1][1] >= 1
