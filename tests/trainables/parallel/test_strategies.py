from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables import Training, Worker
from trainables.parallel.strategies import Single, choose, share


def ranks(world_size: int, training: Training | None = None) -> list[Worker]:
    worker = replace(Worker.alone(training=training), world_size=world_size)
    return [replace(worker, rank=rank) for rank in range(world_size)]


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 40), world_size=st.integers(1, 9))
def test_each_sample_counts_on_exactly_one_rank(size, world_size):
    parts = [share(torch.arange(size), worker) for worker in ranks(world_size)]
    counted = [at for own, weight in parts if weight for at in own.tolist()]
    assert sorted(counted) == list(range(size))
    assert all(len(own) for own, _ in parts)


def test_one_rank_needs_no_group_whatever_the_strategy():
    assert choose(ranks(1, Training("ddp"))[0]) == Single()


def test_several_ranks_need_a_strategy_for_several():
    with pytest.raises(ValueError, match="strategy is single, but the trial has 2 ranks; set it"):
        choose(ranks(2)[0])


def test_several_ranks_need_a_group():
    with pytest.raises(ValueError, match="2 ranks, but no process group"):
        choose(ranks(2, Training("ddp"))[0])
