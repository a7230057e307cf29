"""Activation checkpointing. If these fail, saving memory changes what is learned, or saves none."""

from copy import deepcopy

import pytest
import torch
from tasks import deep
from torch import nn

from trainables.trainer.activation_checkpointing import checkpoint_blocks
from trainables.training_state.precision import keep_in_float32


def gradients(model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model(torch.ones(8, 4)).square().sum().backward()
    return [weight.grad for weight in model.parameters()]


@pytest.mark.parametrize(("every", "times"), [(1, [2, 2, 2, 2]), (2, [2, 1, 2, 1])])
def test_every_nth_block_runs_again_with_the_same_dropout_and_gradients(every, times):
    plain, saving = deep(), deep()
    checkpoint_blocks(saving, every)
    for expected, recomputed in zip(gradients(plain), gradients(saving), strict=True):
        assert torch.equal(expected, recomputed)
    assert [block.times for block in saving] == times


def test_evaluation_computes_nothing_twice():
    model = deep()
    checkpoint_blocks(model, 1)
    with torch.no_grad():
        model(torch.ones(8, 4))
    assert [block.times for block in model] == [1, 1, 1, 1]


def test_a_model_without_blocks_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="Linear has no blocks; put them into an nn"):
        checkpoint_blocks(nn.Linear(1, 1), 1)


def test_running_means_see_a_batch_once():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1))
    saving = deepcopy(plain)
    checkpoint_blocks(saving, 1)
    gradients(plain)
    gradients(saving)
    for expected, recomputed in zip(plain.buffers(), saving.buffers(), strict=True):
        assert torch.equal(expected, recomputed)


def test_a_block_that_computes_in_float32_does_so_again():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).bfloat16()
    keep_in_float32(model, ["1"], torch.bfloat16)
    checkpoint_blocks(model, 1)
    model(torch.ones(8, 4, dtype=torch.bfloat16)).sum().backward()
    assert model[1].weight.grad.dtype == torch.float32
