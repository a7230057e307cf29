"""Samples that come one after the other, without an end or a position: streams.

Axes: B samples of a batch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, astuple, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from trainables.data.samples import Collation
from trainables.data.sources import CPU, Batch, Source, Tensors
from trainables.data.stream_parts import Layout, Part
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

    is_stream = True

    def __post_init__(self) -> None:
        for name, low in (("workers", 0), ("prefetch", 1), ("length", 1)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ValueError(f"Stream: {name} is {value}; give {low} or more")
        readable = hasattr(self.dataset, "__iter__") or hasattr(self.dataset, "open")
        if isinstance(self.dataset, Iterator) or not (readable or callable(self.dataset)):
            raise TypeError(
                f"Stream: a {type(self.dataset).__name__} can't be read pass after pass; give an "
                "object with __iter__ that begins anew, or a function open(part, parts) that "
                "returns an iterable"
            )

    @property
    def samples(self) -> int | None:
        return self.length

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
            return Part(self.dataset, Layout(0, 1, 1, 0), 0, 0).first(samples)

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
    """The samples of a rank, read ahead by its worker processes: a batch of theirs an update."""

    is_stream = True

    def __init__(self, stream: Stream, layout: Layout, seed: int) -> None:
        self._stream, self._layout, self._seed = stream, layout, seed
        self._loader_type = _stateful_loader()
        self._waiting = Waiting(stream.device)
        self._loader: Any = None  # None: not opened yet
        self._batches: Any = iter(())
        self._held: Batch = ()  # samples of the newest update, and where they are
        self._positions = range(0)
        self._begin(0)

    @property
    def samples(self) -> int | None:
        return self._stream.length

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
        first, layout = int(at_B[0]), self._layout
        with self._waiting:
            if not self._positions or first > self._positions[-1]:
                self._held = self._load()
                self._positions = range(
                    first, first + layout.rank_samples * layout.size, layout.size
                )
            if first in self._positions:
                row = self._positions.index(first)
            elif at_B.tolist() == [0]:  # a pass in step with other ranks, which does not count
                row = 0
            else:
                raise ValueError(
                    f"Stream: position {first} is not of the update that has {self._positions[0]} "
                    f"to {self._positions[-1]}; ask for samples in order"
                )
            rows, device = slice(row, row + len(at_B)), self._stream.device
            return tuple(column[rows].to(device, non_blocking=True) for column in self._held)

    def state(self) -> dict[str, Any]:
        """Return where the samples after the newest update's begin."""
        return {
            "layout": astuple(self._layout),
            "start": self._start,
            "updates": self._updates,
            "samples": self._start + self._updates * self._layout.batch,  # of all ranks
            "loader": self._saved if self._loader is None else self._loader.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after `state`; with another batch or number of ranks or workers, by `skip`."""
        if state["layout"] == astuple(self._layout):
            self._begin(state["start"], state["updates"], state["loader"])
        else:
            self.skip(state["samples"])

    def skip(self, samples: int) -> None:
        """Go on after the first samples of the trial, counted over all ranks.

        This is exact where each process reads the complete data set, if all its passes are equally
        long. Where the data set divides itself, each process skips as many samples of its part as
        it gets of so many; this is exact if only the batch changed and there is one worker at most.
        """
        self._begin(samples)

    def wait_seconds(self) -> float:
        return self._waiting.take()

    def close(self) -> None:
        if self._loader is not None and self._layout.workers:
            self._batches._shutdown_workers()  # an error may hold the iterator (torch 2.13)
        self._loader, self._batches = None, iter(())

    def _begin(self, start: int, updates: int = 0, loader: Any = None) -> None:
        """Forget what was read, and go on where the loader had this state.

        Args:
            start: samples of all ranks before those that are dealt like this.
            updates: read since then.
        """
        self.close()
        self._start, self._updates, self._saved = start, updates, loader
        self._held, self._positions = (), range(0)

    def _load(self) -> Batch:
        """Return the samples of another update."""
        workers, layout = self._layout.workers, self._layout
        with naming_killed_workers("Stream") if workers else preserved():
            if self._loader is None:
                self._open()
            batch: Batch | None = next(self._batches, None)
        if batch is None:
            raise ValueError(
                f"Stream: a pass of the data set has no samples for rank {layout.rank} of "
                f"{layout.size}; give an iterable that has some each time that it is iterated, or "
                "train on fewer ranks"
            )
        self._updates += 1
        return batch

    def _open(self) -> None:
        """Start the workers where the stream begins, or went on."""
        stream, layout = self._stream, self._layout
        self._loader = self._loader_type(
            Part(stream.dataset, layout, self._seed, self._start),
            batch_size=layout.rank_samples,
            drop_last=True,
            num_workers=layout.workers,
            prefetch_factor=stream.prefetch if layout.workers else None,
            collate_fn=stream.collate,
            pin_memory=stream.device.type == "cuda",
            multiprocessing_context="fork" if layout.workers else None,
            worker_init_fn=ending_with_this_process(),
            generator=torch.Generator(),  # or it would draw from the generator of training
        )
        if self._saved is not None:
            self._loader.load_state_dict(self._saved)
        with kept_sigchld():
            self._batches = iter(self._loader)


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
