"""A task whose losses show which samples were seen, for tests of every source.

The loss of sample i is 2^i, so the mean over N samples is (2^N - 1) / N if each was counted once,
and nothing else if not: sums of so few powers of two are exact in 64 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from trainables.data import IGNORED, Batch, Data, MapDataset, Source, Tensors, TokenFile, Tokens
from trainables.task import Task

SOURCES = ("tensors", "loaded", "tokens")
TRAINING, VALIDATION = 45, 17  # targets; samples of `tokens` are windows of two
LENGTH = 2


def once(number: int) -> float:
    """Return the mean loss over samples each counted once."""
    return (2**number - 1) / number


@dataclass(frozen=True)
class Counting(Task):
    """A task with batches of 7 samples: of the last batch, ranks get unequal shares, or none."""

    lr: float = 0.0
    batch: int = 7
    source: str = "tensors"
    folder: Path = Path()
    most: int = 100  # samples that memory has room for

    def build_model(self) -> nn.Module:
        return nn.Linear(1, 1)

    def load_data(self) -> Data:
        return Data(self._samples(TRAINING), self._samples(VALIDATION))

    def _samples(self, number: int) -> Source:
        if self.source == "tensors":
            return Tensors(torch.arange(number), torch.zeros(number))
        if self.source == "loaded":
            return MapDataset(drawn, length=number)
        path = self.folder / f"{number}.tokens"
        return Tokens(TokenFile.build(path, [range(number + 1)], list, 100), LENGTH)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        if len(batch[0]) > self.most:
            raise torch.OutOfMemoryError("out of memory")
        first, second = batch
        if self.source == "tokens":
            first, second = (second - 1)[second != IGNORED], torch.zeros(1, dtype=torch.float64)
        return 2.0 ** first.double() + 0 * model(second.new_zeros(1, 1)).sum()

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        values = {"loss": self.compute_losses(model, batch)}
        return {**values, "drawn": batch[1].double()} if self.source == "loaded" else values


def drawn(position: int) -> tuple[int, float]:
    """Return a sample with a random number."""
    return position, torch.rand(()).item() + np.random.rand()
