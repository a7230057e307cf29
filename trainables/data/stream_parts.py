"""What one process of a rank reads of a stream: seeded sample by sample, and resumable.

Numbers of samples in a pass and of passes count from 0.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, cast

import torch
from torch.utils.data import IterableDataset, get_worker_info

from trainables.data.samples import seed_generators
from trainables.randomness import derive


@dataclass(frozen=True)
class Layout:
    """How the samples of a stream are dealt to ranks and their processes."""

    rank: int
    size: int
    batch: int  # samples of an update, over all ranks
    workers: int  # processes of a rank; 0: the rank's own

    @property
    def rank_samples(self) -> int:
        """How many samples of an update this rank gets: positions rank, rank + size, ..."""
        return len(range(self.rank, self.batch, self.size))


@dataclass(frozen=True)
class Part(IterableDataset[tuple[int, object]]):
    """What a rank reads, as torch's loader asks for it: numbers and samples."""

    dataset: object
    layout: Layout
    seed: int
    start: int  # samples of all ranks that were trained before the stream was dealt like this

    def __iter__(self) -> "PartReader":
        return PartReader(self)

    def first(self, samples: int) -> list[tuple[int, object]]:
        """Return the first samples of a pass, or fewer if there are no more."""
        reader = PartReader(self)
        return list(islice(takewhile(lambda _: reader.passes == 0, reader), samples))


class PartReader(Iterator[tuple[int, object]]):
    """The samples of a worker, pass after pass; it ends at a pass without samples.

    Of a data set that divides itself, it reads a part. Any other is read completely by each
    process, which keeps its own samples: batch after batch goes to the next worker.
    """

    def __init__(self, part: Part) -> None:
        worker, layout = get_worker_info(), part.layout
        self.part, self.worker = part, 0 if worker is None else worker.id
        self.workers = max(1, layout.workers)
        self.number = layout.rank * self.workers + self.worker  # of the process among those
        self.processes = layout.size * self.workers  # of all ranks
        self.divided = divides_itself(part.dataset)
        start = part.start  # of what is read, the number of samples that were trained before
        self.start = len(range(self.number, start, self.processes)) if self.divided else start
        self.passes, self._index = 0, 0  # of the next sample
        self._seen = 0  # samples since the trial's start
        self._samples: Iterator[object] | None = None
        self._stateful: Any = None  # what remembers where it is; None: samples are read again
        # The state that it got, until it has given a sample: `datasets` (5.2) forgets it till then.
        self._inner: bytes | None = None
        if worker is not None and not is_hugging_face(part.dataset):
            # A data set that looks for its worker would leave out samples that are left out here.
            torch.utils.data._utils.worker._worker_info = None

    def __next__(self) -> tuple[int, object]:
        while True:
            sample = self._read()
            if self._is_own(self._seen - 1):
                return self._index - 1, sample

    def state_dict(self) -> dict[str, object]:
        """Return where the next sample is."""
        inner = self._inner
        if inner is None and self._stateful is not None:
            # As bytes, since the data set may go on changing what it returned.
            inner = pickle.dumps(self._stateful.state_dict())
        return {"pass": self.passes, "index": self._index, "seen": self._seen, "inner": inner}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Move to where `state_dict` was called; without help of the data set, by reading again."""
        self.passes, self._inner = state["pass"], state["inner"]
        if self._inner is None:
            for _ in range(state["index"]):
                self._read()
        else:
            self._open()
        self._index, self._seen = state["index"], state["seen"]

    def _read(self) -> object:
        """Return the next sample, which is of the next pass if this one is over."""
        while True:
            seed_generators(self._sample_seed())
            try:
                if self._samples is None:
                    self._open()
                sample = next(cast(Iterator[object], self._samples))
            except StopIteration:
                if self._index == 0:
                    raise
                self._begin_pass()
            except Exception as error:
                layout = self.part.layout
                error.add_note(
                    f"Stream: it was sample {self._index} of pass {self.passes}, read by process "
                    f"{self.worker} of rank {layout.rank} of {layout.size}"
                )
                raise
            else:
                self._index, self._seen, self._inner = self._index + 1, self._seen + 1, None
                return sample

    def _sample_seed(self) -> int:
        """Return the seed of a sample: of a pass's first, equal in all parts.

        So a generator may shuffle its files and then take a part of them.
        """
        number = (self.number, self.processes) if self.divided and self._index else ()
        return derive(self.part.seed, self.passes, self._index, *number)

    def _open(self) -> None:
        dataset: Any = self.part.dataset
        layout, samples = self.part.layout, dataset
        if is_hugging_face(dataset):
            from datasets.distributed import split_dataset_by_node

            samples = split_dataset_by_node(dataset, layout.rank, layout.size)
        elif self.divided:
            samples = getattr(dataset, "open", dataset)(self.number, self.processes)
        if hasattr(samples, "set_epoch"):
            samples.set_epoch(self.passes)
        state = None if self._inner is None else pickle.loads(self._inner)
        if state is not None:
            samples.load_state_dict(state)
        self._samples = iter(samples)
        self._stateful = samples if _remembers(samples) else None

    def _begin_pass(self) -> None:
        """Go on to the next pass, or to that of the first sample that was not trained before."""
        skipped = max(0, self.start - self._seen) // self._index
        self.passes, self._seen = self.passes + 1 + skipped, self._seen + skipped * self._index
        self._index, self._samples, self._stateful, self._inner = 0, None, None, None

    def _is_own(self, position: int) -> bool:
        """Return whether the sample at this position of what is read is for this process."""
        layout, number = self.part.layout, position - self.start
        if self.divided or number < 0:
            return number >= 0
        update, within = divmod(number, layout.batch)
        return within % layout.size == layout.rank and update % self.workers == self.worker


def is_hugging_face(dataset: object) -> bool:
    """Return whether this is an IterableDataset of Hugging Face's `datasets`."""
    return any(kind.__module__ == "datasets.iterable_dataset" for kind in type(dataset).__mro__)


def divides_itself(dataset: object) -> bool:
    """Return whether the data set opens a part of itself, so that others need not be read."""
    return is_hugging_face(dataset) or hasattr(dataset, "open") or not hasattr(dataset, "__iter__")


def _remembers(samples: Any) -> bool:
    """Return whether an object's state leads to exactly the samples that would have come next.

    States of `datasets` (5.2) do not hold the contents of a shuffle buffer, nor the random numbers
    of a batch that `map` was in the middle of.
    """
    if not (hasattr(samples, "state_dict") and hasattr(samples, "load_state_dict")):
        return False
    stages = [samples._ex_iterable] if is_hugging_face(samples) else []
    while stages:
        stage = stages.pop()
        if "BufferShuffled" in type(stage).__name__ or getattr(stage, "batched", False):
            return False
        inner = getattr(stage, "ex_iterable", None)
        stages += [*getattr(stage, "ex_iterables", ()), *([] if inner is None else [inner])]
    return True
