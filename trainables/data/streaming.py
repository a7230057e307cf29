"""Samples that come one after the other, without an end or a position: streams.

Axes: B samples of a batch.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, astuple, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from trainables.data.samples import Collation
from trainables.data.sources import CPU, Batch, Source, Tensors
from trainables.data.stream_parts import Layout, Part, divides_itself
from trainables.data.waiting import Waiting
from trainables.data.worker_processes import (
    ending_with_this_process,
    kept_sigchld,
    naming_killed_workers,
)
from trainables.randomness import preserved


@dataclass(frozen=True)
class Stream(Source):
    """A source of training samples that are read in the order in which they come.

    An exhausted data set begins again, after `set_epoch(pass)` if it has that. While a sample is
    made, the generators of Python, numpy and torch depend on the trial's seed, the pass and the
    sample's number in it; where the data set divides itself, also on the part.
    """

    # An IterableDataset of `datasets`; what has, or is, a function `open(part, parts)` returning
    # the samples of one of so many parts; or any iterable, of which each process reads all.
    dataset: object
    workers: int = 2  # processes of a rank; 0: the rank itself reads
    prefetch: int = 2  # batches that each worker loads ahead
    # A batch (a tuple of tensors, whose rows are samples) of a list of samples, of any kind then;
    # None: torch's default_collate, of the values of samples that are mappings.
    collate_fn: Callable[[list[Any]], tuple[Tensor, ...]] | None = None
    length: int | None = None  # samples that count as an epoch; None: there are no epochs
    _: KW_ONLY
    device: torch.device = field(default=CPU, repr=False)  # set by `to`, like dtype
    dtype: torch.dtype | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, low in (("workers", 0), ("prefetch", 1), ("length", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"Stream: {name} is {value}; give {low} or more")
        if isinstance(self.dataset, Iterator):
            raise TypeError(
                f"Stream: a {type(self.dataset).__name__} can be read only once; give an object "
                "with __iter__ that begins anew, or the function open(part, parts) that made it"
            )
        readable = hasattr(self.dataset, "__iter__") or hasattr(self.dataset, "open")
        if not readable and not callable(self.dataset):
            raise TypeError(
                f"Stream: a {type(self.dataset).__name__} can't be read; give an iterable, or a "
                "function open(part, parts) that returns one"
            )

    @property
    def samples(self) -> int | None:
        return self.length

    @property
    def is_stream(self) -> bool:
        return True

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError(
                "Stream: an epoch has no length; give Stream(..., length=N), or the trial's length "
                "in updates, samples or tokens"
            )
        return self.length

    def to(self, device: torch.device, dtype: torch.dtype) -> "Stream":
        return replace(self, device=device, dtype=dtype)

    def batch(self, at_B: Tensor) -> Batch:
        """Return samples of the first pass by their numbers; for looking at them only: slow."""
        return self.first(int(at_B.max()) + 1).batch(at_B)

    def first(self, samples: int) -> Tensors:
        """Return the first samples, for example to validate on; fewer if there are no more."""
        pairs = self.read(samples)
        with preserved():
            return Tensors(*(column.to(self.device) for column in self.collate(pairs)))

    def read(self, samples: int) -> list[tuple[int, object]]:
        """Return numbers and values of the first samples of a pass, as `collate` takes them."""
        with preserved():
            return Part(self.dataset, Layout(0, 1, 1, 0), 0, 0, 0).first(samples)

    def collate(self, pairs: list[tuple[int, object]]) -> Batch:
        """Make a batch of numbers and samples."""
        numbers, samples = map(list, zip(*pairs, strict=True))
        if self.collate_fn is None:
            samples = [_values(sample) for sample in samples]
        return Collation("Stream", self.dtype, self.collate_fn).collate(samples, numbers)

    def shard(self, rank: int, size: int, *, batch: int, seed: int = 0) -> "StreamShard":
        """Open the samples of a rank: of each update, those at every size-th position.

        Args:
            batch: samples of an update, over all ranks; the same in each update.
            seed: of all random numbers drawn while samples are made; the same on all ranks.

        Raises:
            ValueError: the batch has fewer samples than there are ranks.
            ModuleNotFoundError: torchdata is not installed.
        """
        if batch < size:
            raise ValueError(
                f"Stream: a batch has {batch} samples for {size} ranks; give at least one a rank"
            )
        return StreamShard(self, Layout(rank, size, batch, self.workers), seed)


class StreamShard(Source):
    """The samples of a rank, read ahead by its worker processes."""

    def __init__(self, stream: Stream, layout: Layout, seed: int) -> None:
        self._stream, self._layout, self._seed = stream, layout, seed
        self._loader_type = _stateful_loader()
        self._waiting = Waiting(stream.device)
        self._loader: Any = None
        self._batches: Any = iter(())
        self._begin(0)

    @property
    def samples(self) -> int | None:
        return self._stream.length

    @property
    def is_stream(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self._stream)

    def to(self, device: torch.device, dtype: torch.dtype) -> "StreamShard":
        return StreamShard(self._stream.to(device, dtype), self._layout, self._seed)

    def batch(self, at_B: Tensor) -> Batch:
        """Return this rank's samples at these positions, which count all samples of the trial.

        The samples of an update stay until those of a later one are asked for.

        Raises:
            ValueError: the positions are those of an earlier update, or the stream has no samples.
        """
        with self._waiting:
            columns = self._held_rows(at_B.tolist())
            device = self._stream.device
            return tuple(column.to(device, non_blocking=True) for column in columns)

    def state(self) -> dict[str, Any]:
        """Return where the samples after those given out begin; to call between updates."""
        updates = -(-self._given // self._layout.share)
        state = {
            "layout": astuple(self._layout),
            "samples": self._start + updates * self._layout.batch,  # of all ranks
            "start": self._start,
            "given": self._given,
        }
        if self._used < self._loaded:
            number, loader = self._before
            return {**state, "pass": number, "loader": loader, "used": self._used}
        loader = None if self._loader is None else self._loader.state_dict()
        return {**state, "pass": self._pass, "loader": loader, "used": 0}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after `state`; with another batch or number of ranks or workers, by `skip`."""
        if state["layout"] != astuple(self._layout):
            self.skip(state["samples"])
            return
        self._begin(state["start"])
        self._given, self._pass = state["given"], state["pass"]
        if state["loader"] is not None:
            self._open_pass(state["loader"])
        if state["used"]:
            self._load()
            self._used = state["used"]

    def skip(self, samples: int) -> None:
        """Go on after the first samples of the trial, counted over all ranks.

        This is exact where each process reads the complete data set, if all its passes are equally
        long. Where the data set divides itself, each rank skips as many samples of its part as it
        gets of so many; this is exact if only the batch changed and there is one worker at most.
        """
        self._begin(samples)
        if divides_itself(self._stream.dataset):
            for _ in range(self._layout.rank, samples, self._layout.size):
                self._take(1)
            self._given = 0

    def wait_seconds(self) -> float:
        return self._waiting.take()

    def close(self) -> None:
        if self._loader is not None and self._layout.workers:
            self._batches._shutdown_workers()  # an error may hold the iterator (torch 2.13)
        self._loader, self._batches = None, iter(())

    def _begin(self, start: int) -> None:
        """Forget what was read, and begin with the trial's sample `start`."""
        self.close()
        self._start, self._given = start, 0  # of all ranks before, and of this rank since
        self._pass, self._is_empty = 0, True  # whether the pass has given no sample yet
        self._batch: Batch = ()  # the loader's newest,
        self._loaded = self._used = 0  # its samples, and those of them that were given out
        self._before: tuple[int, Any] = (0, None)  # its pass, and the loader's state before it
        self._held: list[Batch] = []  # samples of the current update,
        self._positions: list[int] = []  # and where they are

    def _held_rows(self, wanted: list[int]) -> Batch:
        """Return samples of the current update, or begin another."""
        positions = self._positions
        new = [at for at in wanted if not positions or at > positions[-1]]
        if new and len(positions) >= self._layout.share:
            self._held, self._positions = [], []
        self._held += self._take(len(new))
        self._positions += new
        first = bisect_left(self._positions, wanted[0])
        if self._positions[first : first + len(wanted)] == wanted:
            return _rows(self._held, first, len(wanted))
        if wanted == [0]:  # a pass in step with other ranks, whose sample does not count
            return _rows(self._held, 0, 1)
        raise ValueError(
            f"Stream: positions {wanted[0]} to {wanted[-1]} are not of the update that has "
            f"{self._positions[0]} to {self._positions[-1]}; ask for samples in order"
        )

    def _take(self, count: int) -> list[Batch]:
        """Return the next samples, in pieces."""
        pieces = []
        while count:
            if self._used == self._loaded:
                self._load()
            size = min(count, self._loaded - self._used)
            pieces.append(_rows([self._batch], self._used, size))
            self._used, self._given, count = self._used + size, self._given + size, count - size
        return pieces

    def _load(self) -> None:
        """Get the loader's next batch, from another pass if this one is over."""
        with ExitStack() as stack:
            if self._layout.workers:
                stack.enter_context(naming_killed_workers("Stream"))
            else:
                stack.enter_context(preserved())
            while True:
                if self._loader is None:
                    self._open_pass(None)
                self._before = self._pass, self._loader.state_dict()
                if (batch := next(self._batches, None)) is not None:
                    self._batch, self._is_empty = batch, False
                    self._loaded, self._used = len(batch[0]), 0
                    return
                if self._is_empty:
                    raise ValueError(
                        f"Stream: pass {self._pass} of the data set has no samples for rank "
                        f"{self._layout.rank} of {self._layout.size}; give it some, or train on "
                        "fewer ranks"
                    )
                self.close()
                self._pass, self._is_empty = self._pass + 1, True

    def _open_pass(self, state: Any) -> None:
        """Start the workers at the beginning of the pass, or where the loader had this state."""
        stream, layout = self._stream, self._layout
        part = Part(stream.dataset, layout, self._seed, self._start, self._pass)
        self._loader = self._loader_type(
            part,
            batch_size=layout.share,
            num_workers=layout.workers,
            prefetch_factor=stream.prefetch if layout.workers else None,
            collate_fn=stream.collate,
            pin_memory=stream.device.type == "cuda",
            multiprocessing_context="fork" if layout.workers else None,
            worker_init_fn=ending_with_this_process(),
            generator=torch.Generator(),  # or it would draw from the generator of training
        )
        if state is not None:
            self._loader.load_state_dict(state)
            self._is_empty = False
        with kept_sigchld():
            self._batches = iter(self._loader)


def _rows(pieces: list[Batch], first: int, count: int) -> Batch:
    """Return rows of the pieces put together; of a single piece as views, which stay pinned."""
    parts = []
    for piece in pieces:
        size = len(piece[0])
        if first < size and count:
            part = tuple(column[first : first + count] for column in piece)
            parts.append(part)
            count -= len(part[0])
        first = max(0, first - size)
    return parts[0] if len(parts) == 1 else tuple(map(torch.cat, zip(*parts, strict=True)))


def _values(sample: object) -> object:
    """Return the values of a mapping, as `datasets` gives samples, with lists as tensors."""
    if not isinstance(sample, Mapping):
        return sample
    return tuple(
        torch.as_tensor(value) if isinstance(value, list) else value for value in sample.values()
    )


def _stateful_loader() -> type[Any]:
    try:
        from torchdata.stateful_dataloader import StatefulDataLoader
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Stream: torchdata is not installed; pip install 'hposvc[streaming]'"
        ) from error
    loader: type[Any] = StatefulDataLoader
    return loader
