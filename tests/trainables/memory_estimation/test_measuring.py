"""Forecasts against real updates. If they fail, a forecast that says "fits" runs out of memory."""

import sys
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from gpt import Gpt, Sizes
from torch import nn

from trainables import Data, Task, Tensors, Training
from trainables.load import resolve
from trainables.memory_estimation.forecast import Variant, make_forecast
from trainables.memory_estimation.measuring import MeasuredTrial, MeasurementFailed, measure

CLOSE = 0.1


@dataclass(frozen=True)
class Layers(Task):
    """A model of mostly weights: 207 MB of them, and a batch of 256 rows."""

    batch: int = 256
    width: int = 1536
    layers: int = 22

    def build_model(self):
        sizes = [self.width] * self.layers
        return nn.Sequential(*(nn.Sequential(nn.Linear(size, size), nn.ReLU()) for size in sizes))

    def load_data(self):
        samples = Tensors(torch.zeros(256, self.width))
        return Data(samples, samples)

    def compute_losses(self, model, batch):
        return model(batch[0]).square()


@dataclass(frozen=True)
class Words(Task):
    """A model with attention, norms and dropout: 237 MB of weights, and as many of activations."""

    batch: int = 8

    def build_model(self):
        return Gpt(Sizes(8000, 64, 10, 640, 8, dropout=0.1, tie=False))

    def load_data(self):
        tokens = Tensors(torch.zeros(16, 65, dtype=torch.long))
        return Data(tokens, tokens)

    def compute_losses(self, model, batch):
        logits = model(batch[0][:, :-1])
        return nn.functional.cross_entropy(
            logits.flatten(0, 1), batch[0][:, 1:].flatten(), reduction="none"
        )


BROKEN = """
from trainables.memory_estimation.measuring import TinyTask

class Broken(TinyTask):
    def compute_losses(self, model, batch):
        raise RuntimeError("no loss today")
"""


@pytest.mark.parametrize(
    ("strategy", "task"),
    [
        pytest.param("single", Layers(), marks=pytest.mark.long),
        pytest.param("ddp", Words(), marks=pytest.mark.full),
        pytest.param("fsdp", Layers(), marks=pytest.mark.full),
        pytest.param("single", Words(), marks=pytest.mark.full),
        pytest.param("ddp", Layers(), marks=pytest.mark.full),
        pytest.param("fsdp", Words(), marks=pytest.mark.full),
        pytest.param("zero1", Layers(), marks=pytest.mark.full),
        pytest.param("zero1", Words(), marks=pytest.mark.full),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_forecast_is_within_a_tenth_of_what_updates_take(strategy, task):
    training, ranks = Training(strategy=strategy), 1 if strategy == "single" else 2
    forecast = make_forecast(task, task.load_data(), Variant("", training, ranks), gpu=False)
    assert forecast.peak == pytest.approx(
        measure(MeasuredTrial(task, training, ranks, False)), rel=CLOSE
    )


@pytest.mark.full
def test_a_forecast_of_trials_at_once_is_within_a_tenth_of_what_their_updates_take():
    task, training = Layers(width=512, layers=8, batch=64), Training(trials_per_process=8)
    forecast = make_forecast(task, task.load_data(), Variant("", training, 1), gpu=False)
    assert forecast.peak == pytest.approx(
        measure(MeasuredTrial(task, training, 1, False)), rel=CLOSE
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("task", [Layers(), Words()], ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_forecast_is_within_a_tenth_of_what_a_gpu_gave(task, precision):
    training = Training(precision=precision)
    forecast = make_forecast(task, task.load_data(), Variant("", training, 1), gpu=True)
    assert forecast.peak == pytest.approx(
        measure(MeasuredTrial(task, training, 1, True)), rel=CLOSE
    )


@dataclass(frozen=True)
class Talking(Layers):
    """A task whose rank 1 prints more than a pipe holds, and fails, while rank 0 waits for it."""

    def compute_losses(self, model, batch):
        if dist.is_initialized() and dist.get_rank() == 1:
            sys.stderr.write("and on\n" * 30_000)
            raise RuntimeError("enough said")
        return super().compute_losses(model, batch)


@pytest.mark.full
def test_a_rank_that_says_much_and_fails_is_the_one_that_is_named():
    with pytest.raises(MeasurementFailed, match=r"^rank 1: RuntimeError: enough said"):
        measure(MeasuredTrial(Talking(layers=2, width=64), Training(strategy="ddp"), 2, False))


@pytest.mark.full
def test_a_process_with_a_task_of_a_file_that_breaks_off_says_why(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    task = resolve(f"{tmp_path / 'broken.py'}:Broken")
    with pytest.raises(MeasurementFailed, match="no loss today"):
        measure(MeasuredTrial(task(), Training(), 1, False))
