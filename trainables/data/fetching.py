"""Batches that worker processes load ahead, in the order of a plan.

The processes are those of torch's DataLoader: they are forked, so a dataset need not be pickled and
its memory is shared; they live from epoch to epoch, and end with the order or the rank.

Axes: B samples of a batch.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from trainables.data.samples import Key, Samples
from trainables.data.sources import Batch, Source
from trainables.data.waiting import Waiting
from trainables.data.worker_processes import (
    ending_with_this_process,
    kept_sigchld,
    naming_killed_workers,
)


class PrefetchingSource(Source):
    """A source for one rank, on its device."""

    def __init__(
        self, samples: Samples, length: int, pool: tuple[int, int], device: torch.device
    ) -> None:
        self._samples, self._length, self._device = samples, length, device
        self._pool = pool  # number of workers, and batches that each loads ahead
        self._plan = FetchPlan()
        self._loader: DataLoader[Batch] | None = None
        self._batches: Iterator[Batch] = iter(())
        self._waiting = Waiting(device)

    def __len__(self) -> int:
        return self._length

    def to(self, device: torch.device, dtype: torch.dtype) -> "PrefetchingSource":
        samples = Samples(self._samples.pick, replace(self._samples.collation, dtype=dtype))
        return PrefetchingSource(samples, self._length, self._pool, device)

    def batch(self, at_B: Tensor) -> Batch:
        with self._waiting:
            if self._plan.is_next(at_B):
                columns = self._next()
            else:
                columns = self._samples.load_here(at_B, self._plan.seed)
            return tuple(column.to(self._device, non_blocking=True) for column in columns)

    def plan(self, upcoming: Iterable[Tensor], seed: int) -> None:
        self._plan.begin(upcoming, seed)
        loader = self._start_loader() if self._loader is None else self._loader
        with kept_sigchld():
            self._batches = iter(loader)  # the processes drop their current batches, and live on
        self._loader = loader

    def wait_seconds(self) -> float:
        return self._waiting.take()

    def close(self) -> None:
        if self._loader is not None:
            # Garbage collection would end the workers, but a propagating error may hold the
            # iterator (torch 2.13).
            self._batches._shutdown_workers()  # type: ignore[attr-defined]
        self._loader, self._batches = None, iter(())
        self._plan.begin((), 0)

    def _next(self) -> Batch:
        with naming_killed_workers("MapDataset"):
            return next(self._batches)

    def _start_loader(self) -> DataLoader[Batch]:
        workers, prefetch = self._pool
        return DataLoader(
            self._samples,
            batch_size=None,  # each key of the plan is a whole batch
            sampler=self._plan,
            num_workers=workers,
            prefetch_factor=prefetch,
            collate_fn=_identity,
            persistent_workers=True,
            pin_memory=self._device.type == "cuda",
            multiprocessing_context="fork",
            worker_init_fn=ending_with_this_process(),
            generator=torch.Generator(),  # or it would draw from the generator of training
        )


class FetchPlan(Sampler[Key]):
    """The upcoming batches, and those of them that the processes have already been given."""

    def __init__(self) -> None:
        self.seed = 0
        self._upcoming: Iterable[Tensor] = ()
        self._given: deque[Tensor] = deque()

    def begin(self, upcoming: Iterable[Tensor], seed: int) -> None:
        """Replace the plan."""
        self._upcoming, self.seed = upcoming, seed
        self._given.clear()

    def __iter__(self) -> Iterator[Key]:
        for at_B in self._upcoming:
            self._given.append(at_B)
            yield self.seed, at_B.tolist()

    def is_next(self, at_B: Tensor) -> bool:
        """Return whether this batch is the next to arrive, and if so remove it from the plan."""
        if self._given and torch.equal(self._given[0], at_B):
            self._given.popleft()
            return True
        return False


def _identity(batch: list[Tensor]) -> list[Tensor]:
    return batch
