"""Samples as the runtime takes them: by position, already where the rank computes.

Axes: B samples of a batch.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Batch = tuple[Tensor, ...]


class Source(Protocol):
    """Samples that can be picked by position."""

    def __len__(self) -> int: ...

    def to(self, device: torch.device, dtype: torch.dtype) -> "Source":
        """The same samples where the rank computes; `dtype` is for floating-point values."""
        ...

    def batch(self, at_B: Tensor) -> Batch:
        """The samples at these positions (whole numbers on the source's device)."""
        ...


class Tensors:
    """A source that fits into the device's memory: a batch is one index into each column."""

    def __init__(self, *columns: Tensor) -> None:
        if len({len(column) for column in columns}) != 1:
            raise ValueError(
                f"Tensors: columns have lengths {[len(column) for column in columns]}; "
                "give one or more of equal length"
            )
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def to(self, device: torch.device, dtype: torch.dtype) -> "Tensors":
        return Tensors(
            *(
                column.to(device, dtype if column.is_floating_point() else None)
                for column in self.columns
            )
        )

    def batch(self, at_B: Tensor) -> Batch:
        return tuple(column[at_B] for column in self.columns)


@dataclass(frozen=True)
class Data:
    """What to learn from, and what to judge by."""

    train: Source
    validation: Source
