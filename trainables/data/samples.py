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
        try:
            batch: Any = (self.collate_fn or default_collate)(samples)
        except (RuntimeError, TypeError) as error:
            if self.collate_fn is not None:
                raise
            raise ValueError(
                f"{self.owner}: the samples at {positions[0]} to {positions[-1]} of a batch do not "
                f"go together; give all the same shapes, or a collate_fn that pads: {error}"
            ) from error
        columns = list(batch) if isinstance(batch, tuple | list) else [batch]
        for column in columns:
            if not isinstance(column, Tensor) or not column.dim() or len(column) != len(samples):
                shape = tuple(column.shape) if isinstance(column, Tensor) else type(column).__name__
                maker = "default_collate" if self.collate_fn is None else "collate_fn"
                raise TypeError(
                    f"{self.owner}: {maker} returned {shape} for {len(samples)} samples, at "
                    f"{positions[0]} to {positions[-1]}; give samples of tensors, arrays or "
                    "numbers, or a collate_fn that returns a tuple of tensors with a row for each"
                )
        return tuple(
            column.to(self.dtype) if column.is_floating_point() else column for column in columns
        )


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
