"""Tasks that cannot run on tensors without data."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from trainables import Data, Task, Tensors, Training
from trainables.memory_estimation.forecast import (
    Forecast,
    Variant,
    make_forecast,
)
from trainables.memory_estimation.memory_tracker import CannotForecast


@dataclass(frozen=True)
class Wide(Task):
    """A sequence of equal layers, of which only the inputs are kept for long."""

    batch: int = 64
    width: int = 512
    layers: int = 8

    def build_model(self):
        sizes = [self.width] * self.layers
        return nn.Sequential(*(nn.Sequential(nn.Linear(size, size), nn.ReLU()) for size in sizes))

    def load_data(self):
        samples = Tensors(torch.zeros(8, self.width))
        return Data(samples, samples)

    def compute_losses(self, model, batch):
        return model(batch[0]).square()


@dataclass(frozen=True)
class Looking(Wide):
    """A task that branches on a value computed by the model."""

    def compute_losses(self, model, batch):
        losses = model(batch[0]).square()
        return losses if losses.mean().item() < 1 else losses.sqrt()


def found(task: Task, training: Training, ranks: int = 1, gpu: bool = False) -> Forecast:
    return make_forecast(task, task.load_data(), Variant("", training, ranks), gpu)


def test_what_needs_numbers_is_refused_with_the_reason():
    with pytest.raises(CannotForecast, match="looks at a number"):
        found(Looking(), Training())
