"""Weights mapped from files. If these fail, ranks hold whole models that are to be sharded."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from tasks import Decoded, Decoding, curves, learned, losses, resumed
from torch import nn
from safetensors.torch import save_model

from trainables import Data, Task, Tensors, Training, Worker
from trainables.lora import LoraOptions, adapt
from trainables.monitoring import memory
from trainables.pretrained import fingerprints, load_pretrained
from trainables.trainer.fit import prepare

CPU = torch.device("cpu")
WIDTH, LAYERS = 1024, 40
MODEL = 4 * LAYERS * WIDTH * WIDTH  # bytes


def blocks() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH, False)) for _ in range(LAYERS)))


@dataclass(frozen=True)
class Large(Task):
    """A model of 168 MB in a file, or made at random; its data are a few numbers."""

    file: str = ""

    def build_model(self) -> nn.Module:
        return load_pretrained(blocks, Path(self.file)) if self.file else blocks()

    def load_data(self) -> Data:
        samples = Tensors(torch.zeros(4, WIDTH))
        return Data(samples, samples)

    def compute_losses(self, model, batch):
        return model(batch[0]).square()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr)


def growth(rank: int, file: str) -> int:
    """Return how much the process grows at most, until it can train."""
    worker = replace(Worker.alone(training=Training("fsdp")), rank=rank, world_size=4)
    with prepare(Large(), worker):  # imports all
        pass
    before = memory.measure(CPU).now
    memory.reset_peak(CPU)
    with prepare(Large(file=file), worker):
        return memory.measure(CPU).peak - before


def test_a_rank_of_fsdp_never_holds_the_whole_model(on_ranks, tmp_path):
    save_model(blocks(), str(tmp_path / "model.safetensors"))
    files = on_ranks(growth, str(tmp_path / "model.safetensors"), ranks=4)
    random = on_ranks(growth, "", ranks=4)
    print([f / MODEL for f in files], [f / MODEL for f in random])
