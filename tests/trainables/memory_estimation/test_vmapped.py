"""Forecasts of trials at once, of offload, and of models that keep plain tensors.

If these fail, people put more trials onto a GPU than it holds, or are told of a bug that is none.
"""

from dataclasses import dataclass

import pytest
import torch
from forecasts import Wide, found
from torch import nn

from trainables import Training
from trainables.memory_estimation.forecast import adapted_to_ranks, variants
from trainables.memory_estimation.memory_tracker import CannotForecast
from trainables.vmapped.refusals import Unbatchable


class Shifting(nn.Linear):
    """A module keeping tensors that are neither parameters nor buffers."""

    def __init__(self, width, hidden):
        super().__init__(width, width)
        self.shift = torch.zeros(width)
        self.more = [torch.ones(width)]
        given = torch.ones(width)
        self.last = (lambda: given) if hidden else (lambda: 1.0)

    def forward(self, x):
        return super().forward(x) * self.more[0] * self.last() + self.shift


@dataclass(frozen=True)
class Plain(Wide):
    hidden: bool = False

    def build_model(self):
        return Shifting(self.width, self.hidden)


def test_trials_at_once_take_a_stack_of_all_and_a_model_of_each():
    single, many = found(Wide(), Training()), found(Wide(), Training(trials_per_process=8))
    assert many.parameters == pytest.approx(2 * 8 * single.parameters, rel=0.01)
    assert many.gradients == pytest.approx(8 * single.gradients, rel=0.01)
    assert many.optimizer == pytest.approx(8 * single.optimizer, rel=0.02)
    assert many.activations == pytest.approx(8 * single.activations, rel=0.15)
    assert many.peak > 6 * 8 * single.parameters
    more = found(Wide(dropout=0.2), Training(trials_per_process=8))
    assert more.activations > many.activations


def test_the_specs_own_way_has_its_trials_at_once_and_several_workers_have_none():
    first, *others = variants(Training(trials_per_process=8), 1)
    assert (first.name, first.chosen) == ("single, trials_per_process: 8", True)
    assert {way.training.trials_per_process for way in others} == {1}
    assert adapted_to_ranks(Training(trials_per_process=8), 1).trials_per_process == 8
    assert adapted_to_ranks(Training(trials_per_process=8), 2) == Training(strategy="ddp")


def test_trials_that_cannot_train_at_once_have_no_forecast():
    with pytest.raises(ValueError, match="at once"):
        found(Wide(), Training(trials_per_process=8, ema=0.9))
    with pytest.raises(Unbatchable, match="RMSprop"):
        found(Rooted(), Training(trials_per_process=8))


@dataclass(frozen=True)
class Rooted(Wide):
    def build_optimizer(self, model):
        return torch.optim.RMSprop(model.parameters())


@pytest.mark.parametrize("stage", [1, 2])
def test_deepspeeds_offload_leaves_the_weights_on_the_gpu(stage):
    weights = found(Wide(), Training()).parameters
    training = Training(strategy="deepspeed", zero_stage=stage, cpu_offload=True)
    moved = found(Wide(), training, 4, gpu=True)
    assert moved.parameters == weights
    assert moved.optimizer == 0
    assert moved.gradients == (weights if stage == 1 else 0)
    assert moved.peak > weights + moved.gradients + moved.activations
    # Its quarter of copies, gradients and moments: 3 + 2 of the weights' size.
    assert moved.host == pytest.approx(5 * weights / 4, rel=0.02)
    stays = found(Wide(), Training(strategy="deepspeed", zero_stage=stage), 4, gpu=True)
    assert moved.peak < stays.peak


def test_plain_tensors_of_modules_are_foreseen():
    assert found(Plain(), Training()).peak > found(Plain(), Training()).parameters
    assert found(Plain(), Training(strategy="ddp"), 2).peak > 0


def test_tensors_that_nobody_finds_are_told_with_the_remedy():
    with pytest.raises(CannotForecast, match="register_buffer"):
        found(Plain(hidden=True), Training())
