"""Models and samples without their values."""

from dataclasses import dataclass, replace

import pytest
import torch
from gpt import Gpt, Sizes
from tasks import Deep

from trainables import Data, Task, Tensors, Training
from trainables.memory_estimation.forecast import (
    Forecast,
    Variant,
    make_forecast,
)
from trainables.memory_estimation.meta_model import count_weights, losses_per_sample


@dataclass(frozen=True)
class Large(Task):
    """A language model of some 7 billion weights."""

    batch: int = 8
    layers: int = 32
    width: int = 4096
    dropout: float = 0.0
    tie: bool = False

    def build_model(self):
        sizes = Sizes(32000, 512, self.layers, self.width, 32, self.dropout, self.tie)
        return Gpt(sizes)

    def load_data(self):
        tokens = Tensors(torch.zeros(8, 513, dtype=torch.long))
        return Data(tokens, tokens)

    def compute_losses(self, model, batch):
        return model(batch[0][:, :-1]).logsumexp(dim=2)


def found(task: Task, training: Training, ranks: int = 1, gpu: bool = False) -> Forecast:
    return make_forecast(task, task.load_data(), Variant("", training, ranks), gpu)


def test_weights_that_are_shared_count_once():
    tied, apart = (count_weights(replace(Large(), layers=1, tie=tie)) for tie in (True, False))
    assert apart - tied == 32000 * 4096
    tied_mb = found(replace(Large(), layers=1, tie=True), Training()).parameters
    assert tied_mb == pytest.approx(tied * 4, rel=0.01)


def test_a_mask_whose_values_are_not_known_keeps_everything():
    forecast = found(Deep(), Training())
    assert forecast.peak > forecast.parameters
    assert losses_per_sample(Deep()) == 5
