"""Tasks whose memory is measured."""

import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from gpt import Gpt, Sizes
from torch import nn

from trainables import Data, Task, Tensors
from trainables.lora import LoraOptions, adapt


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
class Adapted(Layers):
    """A frozen base of 336 MB in bfloat16, under adapters in 32 bits.

    A batch is small, since a CPU without instructions for bfloat16 takes minutes for a larger one.
    """

    batch: int = 16
    width: int = 2048
    layers: int = 40

    def build_model(self):
        return adapt(super().build_model().bfloat16(), LoraOptions(8, targets=("*.0",)))


@dataclass(frozen=True)
class Packed(Layers):
    """Layers with packed weights of 26 MB, of half a byte each, that nobody trains or casts."""

    def build_model(self):
        model = super().build_model()
        for layer in model:
            numbers = layer[0].weight.numel() // 2
            packed = torch.zeros(numbers, dtype=torch.uint8)
            layer[0].packed = nn.Parameter(packed, requires_grad=False)
        return model


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


@dataclass(frozen=True)
class Talking(Layers):
    """A task whose rank 1 prints more than a pipe holds, and fails, while rank 0 waits for it."""

    def compute_losses(self, model, batch):
        if dist.is_initialized() and dist.get_rank() == 1:
            sys.stderr.write("and on\n" * 30_000)
            raise RuntimeError("enough said")
        return super().compute_losses(model, batch)
