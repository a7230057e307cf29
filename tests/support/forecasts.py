"""Forecasts of memory, and a task for them."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from trainables import Training
from trainables.data import Batch, Data, Tensors
from trainables.memory_estimation.forecast import Forecast, Variant, make_forecast
from trainables.task import Task


@dataclass(frozen=True)
class Wide(Task):
    """A sequence of equal layers, of which only the inputs are kept for long."""

    batch: int = 64
    width: int = 512
    layers: int = 8
    dropout: float = 0.0

    def build_model(self) -> nn.Module:
        drops = [nn.Dropout(self.dropout)] if self.dropout else []
        linear = partial(nn.Linear, self.width, self.width)
        return nn.Sequential(
            *(nn.Sequential(linear(), nn.ReLU(), *drops) for _ in range(self.layers))
        )

    def load_data(self) -> Data:
        samples = Tensors(torch.zeros(8, self.width))
        return Data(samples, samples)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch[0]).square()


def found(task: Task, training: Training, ranks: int = 1, gpu: bool = False) -> Forecast:
    """Return the forecast of a task under these options."""
    return make_forecast(task, task.load_data(), Variant("", training, ranks), gpu)
