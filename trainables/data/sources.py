"""Sources of samples, which the runtime reads by position, as batches on the rank's device.

Axes: B samples of a batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from trainables.data.digests import digest_of
from trainables.dataset import DataSet
from trainables.length import ENDLESS

Batch = tuple[Tensor, ...]

CPU = torch.device("cpu")


class Source(Protocol):
    """Samples that can be picked by position; an implementation needs the first three methods."""

    def __len__(self) -> int: ...

    def to(self, device: torch.device, dtype: torch.dtype) -> "Source":
        """Return the samples on the rank's device; `dtype` is for floating-point values."""
        ...

    def batch(self, at_B: Tensor) -> Batch:
        """Return the samples at these positions (integers, on the device `index_device`)."""
        ...

    @property
    def index_device(self) -> torch.device:
        """The device on which positions must be."""
        return CPU

    def plan(self, upcoming: Iterable[Tensor], seed: int) -> None:
        """Announce the batches that will be asked for, in this order; replaces any earlier plan.

        The plan is no promise: other batches may be asked for in between, and are slower.

        Args:
            upcoming: read only as far ahead as batches are loaded; not read by sources that load
                nothing ahead.
            seed: a sample's random numbers start from the seed and the sample's position alone, so
                they depend neither on ranks nor on where training was resumed.
        """
        return

    @property
    def samples(self) -> int | None:
        """The number of samples of an epoch; None: unknown, so that there are no epochs."""
        return len(self)

    def wait_seconds(self) -> float:
        """Return the seconds of the device's time spent waiting for batches since the last call."""
        return 0.0

    def close(self) -> None:
        """Stop loading ahead; a plan starts it again."""
        return

    @property
    def is_stream(self) -> bool:
        """Whether samples come one after the other, and have no positions."""
        return False

    @property
    def digest(self) -> str:
        """An identifier of the samples' contents, 36 characters at most; empty: not computed."""
        return ""

    @property
    def uri(self) -> str:
        """The path or URL of the samples; empty: unknown."""
        return ""


class Tensors(Source):
    """A source held in the device's memory: a batch is an index into each column."""

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
    def index_device(self) -> torch.device:
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
    """The samples of a task: a training and a validation source."""

    train: Source
    validation: Source
    _: KW_ONLY
    name: str = ""  # in the trial's record; empty: the trainable's
    source: str = ""  # the path or URL of the samples, for the record; empty: Source.uri
    drop_last: bool = False  # whether an epoch leaves out a last batch that is not full

    def __post_init__(self) -> None:
        for name in ("train", "validation"):
            value = getattr(self, name)
            if not all(hasattr(value, method) for method in ("__len__", "to", "batch")):
                raise TypeError(
                    f"Data: {name} is {type(value).__name__}, which is no source; {_way_out(value)}"
                )
        if getattr(self.validation, "is_stream", False):
            raise TypeError(
                "Data: validation is a stream, but each evaluation is of the same samples; give "
                "those that it begins with, Stream(...).first(N)"
            )

    def describe(self, otherwise: str) -> tuple[DataSet, DataSet]:
        """Describe both sources for a trial's record.

        Args:
            otherwise: the name to use where `name` is empty.
        """

        def described(context: Literal["training", "validation"], source: Source) -> DataSet:
            uri = self.source or source.uri
            return DataSet(self.name or otherwise, context, source.samples, source.digest, uri)

        return described("training", self.train), described("validation", self.validation)

    def trained_samples(self, batch: int) -> int:
        """Return how many samples an epoch trains on, in batches of this size."""
        samples = self.train.samples
        if samples is None:
            return ENDLESS * batch
        # A single batch stays: an epoch trains. All batches of a stream are full.
        if self.train.is_stream:
            return max(samples - samples % batch, batch)
        return samples - samples % batch if self.drop_last and samples > batch else samples

    def epoch(self, batch: int) -> tuple[int, int]:
        """Return the number of updates and of samples of an epoch, in batches of this size."""
        samples = self.trained_samples(batch)
        return -(-samples // batch), samples

    def batches(self, order: Tensor, batch: int) -> Sequence[Tensor]:
        """Split the positions of an epoch, along the last dimension, into its batches."""
        batches: Sequence[Tensor] = order[..., : self.trained_samples(batch)].split(batch, dim=-1)
        return batches

    def close(self) -> None:
        """Stop loading ahead."""
        self.train.close()
        self.validation.close()


def _way_out(value: object) -> str:
    """Return how to make a source of a value that is none."""
    if isinstance(value, DataLoader):
        return "give MapDataset(...) of the loader's dataset: the runtime makes the batches"
    if isinstance(value, Tensor | tuple | list):
        return "give Tensors(...) of its columns"
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return "give MapDataset(...) of it"
    if hasattr(value, "__iter__"):
        return "give Stream(...) of it to train on, and Stream(...).first(N) to validate on"
    return "give MapDataset(function, length=N) with a function of a position"
