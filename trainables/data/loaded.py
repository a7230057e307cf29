"""Samples that are read or computed one by one, ahead of time, by processes of a rank.

Axes: B samples of a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from trainables.data.fetching import Fetched
from trainables.data.samples import Samples
from trainables.data.sources import Batch, Source


class Dataset(Protocol):
    """What a map-style dataset of torch offers."""

    def __len__(self) -> int: ...

    def __getitem__(self, position: int, /) -> object: ...


@dataclass(frozen=True)
class Loaded(Source):
    """A source whose samples each take a while: files to decode, images to crop at random.

    A sample is a tensor, an array or a number, or a tuple of them, of the same shapes at every
    position. While it is made, the generators of Python, numpy and torch depend on the trial's
    seed, the epoch and its position alone: any number of workers and ranks, and a resumed
    training, draw the same.
    """

    dataset: Dataset | Callable[[int], object]  # or a function of position, with `length`
    workers: int = 2  # processes of each rank, for training and for validation each
    prefetch: int = 2  # batches ahead a worker
    length: int | None = None  # None: the dataset knows

    def __post_init__(self) -> None:
        for name in ("workers", "prefetch"):
            if getattr(self, name) < 1:
                raise ValueError(f"Loaded: {name} is {getattr(self, name)}; give 1 or more")
        if self.length is None and not hasattr(self.dataset, "__len__"):
            raise ValueError(
                f"Loaded: {type(self.dataset).__name__} does not say how many samples it has; "
                "give length"
            )

    def __len__(self) -> int:
        return len(self.dataset) if self.length is None else self.length  # type: ignore[arg-type]

    def to(self, device: torch.device, dtype: torch.dtype) -> Fetched:
        return Fetched(self._samples(dtype), len(self), (self.workers, self.prefetch), device)

    def batch(self, at_B: Tensor) -> Batch:
        return self._plain.here(at_B, 0)

    @cached_property
    def _plain(self) -> Samples:
        return self._samples(None)

    def _samples(self, dtype: torch.dtype | None) -> Samples:
        dataset = self.dataset
        pick = dataset.__getitem__ if hasattr(dataset, "__getitem__") else dataset
        return Samples(pick, dtype)
