from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables import Training, Worker
from trainables.parallel.strategy import Group, Strategy, choose, split_batch


def ranks(world_size: int, training: Training | None = None) -> list[Worker]:
    worker = replace(Worker.alone(training=training), world_size=world_size)
    return [replace(worker, rank=rank) for rank in range(world_size)]


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 40), world_size=st.integers(1, 9), parts=st.integers(1, 5))
def test_each_sample_is_on_exactly_one_rank_and_all_have_equally_many_passes(
    size, world_size, parts
):
    dealt = [split_batch(torch.arange(size), Group(worker), parts) for worker in ranks(world_size)]
    assert sorted(at for own in dealt for part in own for at in part.tolist()) == [*range(size)]
    assert len({len(own) for own in dealt}) == 1
    assert all(len(part) for part in dealt[0])


def test_one_rank_needs_no_group_whatever_the_strategy():
    worker = ranks(1, Training("ddp"))[0]
    assert choose(worker) == Strategy(worker)


def test_several_ranks_need_a_group():
    with pytest.raises(ValueError, match="2 ranks, but no process group"):
        choose(ranks(2, Training("ddp"))[0])
