"""Samples as the runtime takes them: by position, and given where the rank computes.

Axes: B samples of a batch.
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from trainables.data.digests import digest_of
from trainables.dataset import DataSet

Batch = tuple[Tensor, ...]

CPU = torch.device("cpu")


class Source(Protocol):
    """Samples that can be picked by position; a class of its own says the first three at least."""

    def __len__(self) -> int: ...

    def to(self, device: torch.device, dtype: torch.dtype) -> "Source":
        """The same samples where the rank computes; `dtype` is for floating-point values."""
        ...

    def batch(self, at_B: Tensor) -> Batch:
        """The samples at these positions (whole numbers, at the source's `home`)."""
        ...

    @property
    def home(self) -> torch.device:
        """Where positions have to be."""
        return CPU

    def plan(self, upcoming: Iterable[Tensor], seed: int) -> None:
        """Hear which batches will be asked for, in this order; what was planned before is void.

        It is no promise: other batches may be asked for in between, and be slower.

        Args:
            upcoming: read as far ahead as batches are loaded; not at all by who loads nothing.
            seed: with it and a sample's position alone the sample's random numbers begin, so that
                they depend neither on ranks nor on where training was resumed.
        """
        return

    def waited(self) -> float:
        """Seconds of the device's time that went into batches since this was last asked."""
        return 0.0

    def close(self) -> None:
        """End what loads ahead; a plan starts it again."""
        return

    @property
    def digest(self) -> str:
        """What tells these samples from others, 36 characters at most; empty: nobody looks."""
        return ""

    @property
    def place(self) -> str:
        """The file that they are in; empty: it is not known."""
        return ""


class Tensors(Source):
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

    @property
    def home(self) -> torch.device:
        return self.columns[0].device

    @cached_property
    def digest(self) -> str:
        return digest_of(self.columns)

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
    _: KW_ONLY
    name: str = ""  # in the trial's record; empty: the trainable's
    source: str = ""  # the path or URL that they come from, for the record; empty: `place`

    def described(self, otherwise: str) -> tuple[DataSet, DataSet]:
        """Which samples they are, for a trial's record.

        Args:
            otherwise: the name of those that have none.
        """
        name = self.name or otherwise
        train, judged = self.train, self.validation
        return (
            DataSet(name, "training", len(train), train.digest, self.source or train.place),
            DataSet(name, "validation", len(judged), judged.digest, self.source or judged.place),
        )

    def close(self) -> None:
        """End what loads ahead."""
        self.train.close()
        self.validation.close()
