"""What one process of a rank reads of a stream: seeded sample by sample, and resumable.

Numbers of samples in a pass and of passes count from 0.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
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
    def share(self) -> int:
        """How many samples of an update this rank gets: positions rank, rank + size, ..."""
        return len(range(self.rank, self.batch, self.size))


@dataclass(frozen=True)
class Part(IterableDataset[tuple[int, object]]):
    """What a rank reads from one pass on, as torch's loader asks for it: numbers and samples."""

    dataset: object
    layout: Layout
    seed: int
    start: int  # samples that were trained before the stream was dealt like this
    first_pass: int

    def __iter__(self) -> "PartReader":
        return PartReader(self)

    def first(self, samples: int) -> list[tuple[int, object]]:
        """Return the first samples of the pass, or fewer if there are no more."""
        reader = self.__iter__()
        reader.endless = False
        return list(islice(reader, samples))


class PartReader(Iterator[tuple[int, object]]):
    """The samples of a worker.

    A data set that divides itself is read for one pass. Any other is read over and over, completely
    by each process, which keeps its own samples: batch after batch goes to the next worker.
    """

    def __init__(self, part: Part) -> None:
        worker = get_worker_info()
        self.part, self.worker = part, 0 if worker is None else worker.id
        self.endless = not divides_itself(part.dataset)
        self._pass, self._index = part.first_pass, 0  # of the next sample
        self._seen = 0  # samples since the trial's start, if endless
        self._over = False
        self._samples: Iterator[object] | None = None
        self._stateful: Any = None  # what remembers where it is; None: samples are read again
        # The state that it got, until it has given a sample: `datasets` (5.2) forgets it till then.
        self._inner: bytes | None = None
        if worker is not None and not is_hugging_face(part.dataset):
            # A data set that looks for its worker would leave out samples that are left out here.
            torch.utils.data._utils.worker._worker_info = None

    def __next__(self) -> tuple[int, object]:
        while not self._over:
            index = self._index
            try:
                sample = self._read()
            except StopIteration:
                self._end_pass()
                continue
            self._seen += 1
            if not self.endless or self._is_own(self._seen - 1):
                return index, sample
        raise StopIteration

    def state_dict(self) -> dict[str, object]:
        """Return where the next sample is."""
        inner = self._inner
        if inner is None and self._stateful is not None:
            # As bytes, since the data set may go on changing what it returned.
            inner = pickle.dumps(self._stateful.state_dict())
        where = {"pass": self._pass, "index": self._index, "seen": self._seen, "over": self._over}
        return {**where, "inner": inner}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Move to where `state_dict` was called; without help of the data set, by reading again."""
        self._pass, self._seen, self._over = state["pass"], state["seen"], state["over"]
        self._inner = state["inner"]
        if self._inner is not None:
            self._index = state["index"]
            self._open()
            return
        self._index = 0
        while not self._over and self._index < state["index"]:
            self._read()

    def _read(self) -> object:
        seed_generators(self._sample_seed())
        try:
            if self._samples is None:
                self._open()
            sample = next(cast(Iterator[object], self._samples))
        except StopIteration:
            raise
        except Exception as error:
            layout = self.part.layout
            error.add_note(
                f"Stream: it was sample {self._index} of pass {self._pass}, read by process "
                f"{self.worker} of rank {layout.rank} of {layout.size}"
            )
            raise
        self._index, self._inner = self._index + 1, None
        return sample

    def _sample_seed(self) -> int:
        """Return the seed of a sample: of a pass's first, equal in all parts.

        So a generator may shuffle its files and then take a part of them.
        """
        if self.endless or self._index == 0:
            return derive(self.part.seed, self._pass, self._index)
        return derive(self.part.seed, self._pass, self._index, *self._number())

    def _number(self) -> tuple[int, int]:
        """Return which part this is, of how many."""
        layout = self.part.layout
        workers = max(1, layout.workers)
        return layout.rank * workers + self.worker, layout.size * workers

    def _open(self) -> None:
        dataset: Any = self.part.dataset
        layout, samples = self.part.layout, dataset
        if is_hugging_face(dataset):
            from datasets.distributed import split_dataset_by_node

            samples = split_dataset_by_node(dataset, layout.rank, layout.size)
        elif divides_itself(dataset):
            samples = getattr(dataset, "open", dataset)(*self._number())
        if hasattr(samples, "set_epoch"):
            samples.set_epoch(self._pass)
        state = None if self._inner is None else pickle.loads(self._inner)
        if state is not None and _remembers(samples):
            samples.load_state_dict(state)
        self._samples = iter(samples)
        self._stateful = next(filter(_remembers, (samples, self._samples)), None)
        if state is not None and self._stateful is not samples:
            self._stateful.load_state_dict(state)

    def _end_pass(self) -> None:
        if not self.endless:
            self._over = True
            return
        if self._index == 0:
            raise ValueError(
                f"Stream: pass {self._pass} of the data set has no samples; give an iterable that "
                "has some, each time that it is iterated"
            )
        # Passes that were trained before are not read one by one.
        done = max(0, self.part.start - self._seen) // self._index
        self._pass, self._seen = self._pass + 1 + done, self._seen + done * self._index
        self._index, self._samples, self._stateful, self._inner = 0, None, None, None

    def _is_own(self, position: int) -> bool:
        layout, number = self.part.layout, position - self.part.start
        update, within = divmod(number, layout.batch)
        mine = number >= 0 and within % layout.size == layout.rank
        return mine and update % max(1, layout.workers) == self.worker


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
