"""Batches that processes load ahead, as a plan says.

The processes are those of torch's DataLoader: they are forked, so a dataset need not be pickled and
its memory is shared; they stay from epoch to epoch, and end with the order or the rank.

Axes: B samples of a batch.
"""

import ctypes
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from trainables.data.samples import Key, Samples
from trainables.data.sources import Batch, Source
from trainables.data.waiting import Waiting

PR_SET_PDEATHSIG = 1


class Fetched(Source):
    """A source for one rank, on its device."""

    def __init__(
        self, samples: Samples, length: int, pool: tuple[int, int], device: torch.device
    ) -> None:
        self._samples, self._length, self._device = samples, length, device
        self._pool = pool  # workers, and batches ahead of each
        self._plan = Plan()
        self._loader: DataLoader[Batch] | None = None
        self._arriving: Iterator[Batch] = iter(())
        self._waiting = Waiting(device)

    def __len__(self) -> int:
        return self._length

    def to(self, device: torch.device, dtype: torch.dtype) -> "Fetched":
        samples = Samples(self._samples.pick, dtype)
        return Fetched(samples, self._length, self._pool, device)

    def batch(self, at_B: Tensor) -> Batch:
        with self._waiting:
            if self._plan.meets(at_B):
                columns = self._next()
            else:
                columns = self._samples.here(at_B, self._plan.seed)
            return tuple(column.to(self._device, non_blocking=True) for column in columns)

    def plan(self, upcoming: Iterable[Tensor], seed: int) -> None:
        self._plan.begin(upcoming, seed)
        loader = self._started() if self._loader is None else self._loader
        with _signals_as_they_were():
            self._arriving = iter(loader)  # the processes drop what they were at, and stay
        self._loader = loader

    def waited(self) -> float:
        return self._waiting.take()

    def close(self) -> None:
        if self._loader is not None:
            # It would end them when it is collected, but an error under way may hold it (2.13).
            self._arriving._shutdown_workers()  # type: ignore[attr-defined]
        self._loader, self._arriving = None, iter(())
        self._plan.begin((), 0)

    def _next(self) -> Batch:
        try:
            return next(self._arriving)
        except (RuntimeError, OSError, EOFError) as error:
            if "in DataLoader worker process" in f"{error}":  # the dataset's own
                raise
            raise RuntimeError(
                "Loaded: a process that loads samples was killed, perhaps as the machine or its "
                f"/dev/shm was full; give fewer workers, prefetch less, or more of either ({error})"
            ) from error

    def _started(self) -> DataLoader[Batch]:
        workers, prefetch = self._pool
        return DataLoader(
            self._samples,
            batch_size=None,  # a key of the plan is a batch
            sampler=self._plan,
            num_workers=workers,
            prefetch_factor=prefetch,
            collate_fn=_as_it_is,
            persistent_workers=True,
            pin_memory=self._device.type == "cuda",
            multiprocessing_context="fork",
            worker_init_fn=partial(_bind, os.getpid()),
            generator=torch.Generator(),  # else it would draw from training's
        )


class Plan(Sampler[Key]):
    """The batches to come, and which of them the processes have been given."""

    def __init__(self) -> None:
        self.seed = 0
        self._upcoming: Iterable[Tensor] = ()
        self._given: deque[Tensor] = deque()

    def begin(self, upcoming: Iterable[Tensor], seed: int) -> None:
        """Go by these from now on."""
        self._upcoming, self.seed = upcoming, seed
        self._given.clear()

    def __iter__(self) -> Iterator[Key]:
        for at_B in self._upcoming:
            self._given.append(at_B)
            yield self.seed, at_B.tolist()

    def meets(self, at_B: Tensor) -> bool:
        """Whether these come next; if so, they are gone then."""
        if self._given and torch.equal(self._given[0], at_B):
            self._given.popleft()
            return True
        return False


def _as_it_is(batch: list[Tensor]) -> list[Tensor]:
    return batch


@contextmanager
def _signals_as_they_were() -> Iterator[None]:
    """Without the handler of SIGCHLD that torch sets (2.13).

    It raises wherever the main thread is when a worker dies, in the middle of a report or of what
    closes the others, and again at each child's end. Who waits for a batch learns of it anyhow.
    """
    before = signal.getsignal(signal.SIGCHLD)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before)


def _bind(parent: int, _: int) -> None:
    """Let this process end at once when the rank's does, however that ends.

    It holds copies of the rank's connections and of its hold on a GPU: for as long as it lives,
    others would not learn that the rank is gone.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
