"""Samples read or computed one by one, ahead of time, by processes of a rank.

Axes: B samples of a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from trainables.data.fetching import PrefetchingSource
from trainables.data.samples import Collation, Samples
from trainables.data.sources import Batch, Source


class Dataset(Protocol):
    """A map-style dataset of torch."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> object: ...


@dataclass(frozen=True)
class MapDataset(Source):
    """A source of samples that take time to make: files to decode, images to crop at random.

    A sample is a tensor, an array or a number, or a tuple of them, of the same shapes at every
    position. While a sample is made, the generators of Python, numpy and torch depend on the
    trial's seed, the epoch and the position alone: any number of workers and ranks, and a resumed
    training, draw the same numbers.
    """

    dataset: Dataset | Callable[[int], object]  # or a function of position, with `length`
    workers: int = 2  # processes of a rank; training and validation have as many each
    prefetch: int = 2  # batches that each worker loads ahead
    length: int | None = None  # None: len(dataset)
    # A batch (a tuple of tensors, whose rows are samples) of a list of samples, of any kind then;
    # None: torch's default_collate.
    collate_fn: Callable[[list[Any]], tuple[Tensor, ...]] | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "prefetch"):
            if getattr(self, name) < 1:
                raise ValueError(f"MapDataset: {name} is {getattr(self, name)}; give 1 or more")
        if self.length is None and not hasattr(self.dataset, "__len__"):
            raise ValueError(
                f"MapDataset: {type(self.dataset).__name__} does not say how many samples it has; "
                "give length"
            )

    def __len__(self) -> int:
        return len(self.dataset) if self.length is None else self.length  # type: ignore[arg-type]

    def to(self, device: torch.device, dtype: torch.dtype) -> PrefetchingSource:
        return PrefetchingSource(
            self._samples(dtype), len(self), (self.workers, self.prefetch), device
        )

    def batch(self, at_B: Tensor) -> Batch:
        return self._unconverted.load_here(at_B, 0)

    @cached_property
    def _unconverted(self) -> Samples:
        return self._samples(None)

    def _samples(self, dtype: torch.dtype | None) -> Samples:
        dataset = self.dataset
        pick = dataset.__getitem__ if hasattr(dataset, "__getitem__") else dataset
        return Samples(pick, Collation("MapDataset", dtype, self.collate_fn))
