"""Samples picked one by one and collated into batches, in any process.

Axes: B samples of a batch.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from trainables.data.sources import Batch
from trainables.randomness import derive, preserved

Key = tuple[int, list[int]]  # a seed, and positions


@dataclass(frozen=True)
class Samples(Dataset[Batch]):
    """Batches by seed and positions, as torch's DataLoader asks for them."""

    pick: Callable[[int], object]  # a sample by its position
    dtype: torch.dtype | None  # of floating-point values; None: unchanged

    def __getitem__(self, key: Key) -> Batch:
        seed, positions = key
        rows = []
        for position in positions:
            _seed_generators(derive(seed, position))
            rows.append(_checked_row(self.pick(position), position))
        return tuple(self._convert(column) for column in _collate(rows, positions))

    def load_here(self, at_B: Tensor, seed: int) -> Batch:
        """Return a batch made in this process, leaving its random generators unchanged."""
        with preserved():
            return self[seed, at_B.tolist()]

    def _convert(self, column: Tensor) -> Tensor:
        return column.to(self.dtype) if column.is_floating_point() else column


def _checked_row(sample: object, position: int) -> tuple[object, ...]:
    row = tuple(sample) if isinstance(sample, tuple | list) else (sample,)
    for value in row:
        if isinstance(value, str | bytes | dict | None):
            raise TypeError(
                f"MapDataset: the sample at {position} holds a {type(value).__name__}; give a "
                "tensor, an array or a number, or a tuple of them"
            )
    return row


def _collate(rows: list[tuple[object, ...]], positions: list[int]) -> list[Tensor]:
    try:
        columns: list[Tensor] = default_collate(rows)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"MapDataset: the samples at {positions[0]} to {positions[-1]} of a batch do not go "
            f"together; give all the same shapes: {error}"
        ) from error
    return columns


def _seed_generators(seed: int) -> None:
    """Seed the CPU generators of this process; workers must not touch a GPU."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
