"""Samples picked one by one and collated into batches, in any process.

Axes: B samples of a batch.
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from trainables.data.sources import Batch
from trainables.randomness import derive, preserved

Key = tuple[int, list[int]]  # a seed, and positions


@dataclass(frozen=True)
class Collation:
    """How samples become the columns of a batch."""

    owner: str  # the source, for messages
    dtype: torch.dtype | None  # of floating-point values; None: unchanged
    collate_fn: Callable[[list[Any]], tuple[Tensor, ...]] | None = None  # None: torch's

    def collate(self, samples: list[object], positions: list[int]) -> Batch:
        """Collate samples whose positions are known, for messages.

        Raises:
            TypeError, ValueError: the samples, or what collate_fn returned, make no batch.
        """
        if self.collate_fn is None:
            rows = [self._checked_row(*pair) for pair in zip(samples, positions, strict=True)]
            columns = self._collate_rows(rows, positions)
        else:
            columns = self._checked_columns(self.collate_fn(samples), len(positions))
        return tuple(
            column.to(self.dtype) if column.is_floating_point() else column for column in columns
        )

    def _checked_row(self, sample: object, position: int) -> tuple[object, ...]:
        row = tuple(sample) if isinstance(sample, tuple | list) else (sample,)
        for value in row:
            if isinstance(value, str | bytes | dict | None):
                raise TypeError(
                    f"{self.owner}: the sample at {position} holds a {type(value).__name__}; give "
                    "a tensor, an array or a number, a tuple of them, or a collate_fn that makes "
                    "tensors"
                )
        return row

    def _checked_columns(self, batch: object, samples: int) -> list[Tensor]:
        columns: list[Any] = list(batch) if isinstance(batch, tuple | list) else [batch]
        for column in columns:
            if not isinstance(column, Tensor) or not column.dim() or len(column) != samples:
                shape = tuple(column.shape) if isinstance(column, Tensor) else type(column).__name__
                raise TypeError(
                    f"{self.owner}: collate_fn returned {shape} for {samples} samples; return a "
                    f"tuple of tensors with {samples} rows each"
                )
        return columns

    def _collate_rows(self, rows: list[tuple[object, ...]], positions: list[int]) -> list[Tensor]:
        try:
            columns: list[Tensor] = default_collate(rows)
        except (RuntimeError, TypeError) as error:
            raise ValueError(
                f"{self.owner}: the samples at {positions[0]} to {positions[-1]} of a batch do not "
                f"go together; give all the same shapes, or a collate_fn that pads: {error}"
            ) from error
        return columns


@dataclass(frozen=True)
class Samples(Dataset[Batch]):
    """Batches by seed and positions, as torch's DataLoader asks for them."""

    pick: Callable[[int], object]  # a sample by its position
    collation: Collation

    def __getitem__(self, key: Key) -> Batch:
        seed, positions = key
        samples = []
        for position in positions:
            seed_generators(derive(seed, position))
            samples.append(self.pick(position))
        return self.collation.collate(samples, positions)

    def load_here(self, at_B: Tensor, seed: int) -> Batch:
        """Return a batch made in this process, leaving its random generators unchanged."""
        with preserved():
            return self[seed, at_B.tolist()]


def seed_generators(seed: int) -> None:
    """Seed the CPU generators of this process; workers must not touch a GPU."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
