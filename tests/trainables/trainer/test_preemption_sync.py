"""Agreement of ranks on a stop; several ranks are stood for by a reduction of our own."""

from types import SimpleNamespace

import pytest
import torch

from trainables.stop_signals import Notice
from trainables.trainer import preemption_sync
from trainables.trainer.preemption_sync import PreemptionSync


def worker(ranks=1, rank=0):
    device = torch.device("cpu")
    return SimpleNamespace(world_size=ranks, rank=rank, device=device, notice=Notice())


def test_a_single_rank_stops_at_its_own_notice():
    alone = worker()
    sync = PreemptionSync(alone)
    assert not sync.should_stop()
    alone.notice.give()
    assert sync.should_stop()


@pytest.fixture
def reductions(monkeypatch):
    """Stand for another rank that was preempted, and has a patience of 3; count the exchanges."""
    exchanged = []

    def maximum(tensor, op):
        exchanged.append(tensor.tolist())
        tensor.copy_(torch.maximum(tensor, torch.tensor([len(exchanged) > 1, 3])))

    monkeypatch.setattr(preemption_sync.dist, "all_reduce", maximum)
    return exchanged


def test_ranks_stop_together_where_any_was_told_to_end(reductions):
    sync = PreemptionSync(worker(ranks=2, rank=1))
    assert [sync.should_stop() for _ in range(4)] == [False, False, False, True]
    assert len(reductions) == 2, "three updates pass from one exchange to the next"


def test_only_rank_0_sets_the_pace(reductions):
    PreemptionSync(worker(ranks=2, rank=1)).should_stop()
    PreemptionSync(worker(ranks=2, rank=0)).should_stop()
    assert reductions[0] == [0, 0]
    assert reductions[1][1] >= 1
