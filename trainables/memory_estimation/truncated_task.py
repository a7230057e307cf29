"""A task whose epochs end after a few updates, to measure them; all else is as in the original."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.data import Batch, Data, Source, Tensors
from trainables.task import Task


@dataclass(frozen=True)
class TruncatedSource(Source):
    """A given number of samples of a source, starting over where the source has fewer."""

    source: Source
    length: int

    def __len__(self) -> int:
        return self.length

    def to(self, device: torch.device, dtype: torch.dtype) -> "TruncatedSource":
        return TruncatedSource(self.source.to(device, dtype), self.length)

    def batch(self, at_B: Tensor) -> Batch:
        return self.source.batch(at_B % len(self.source))

    @property
    def index_device(self) -> torch.device:
        return self.source.index_device

    def plan(self, upcoming: Iterable[Tensor], seed: int) -> None:
        self.source.plan((at_B % len(self.source) for at_B in upcoming), seed)

    def wait_seconds(self) -> float:
        return self.source.wait_seconds()

    def close(self) -> None:
        self.source.close()


def truncate(task: Task, updates: int) -> Task:
    """Return a copy of the task with epochs of `updates` full batches and evaluation on one."""
    short = copy(task)

    def load_data() -> Data:
        data = task.load_data()
        validation_size = min(task.batch, len(data.validation))
        return Data(
            TruncatedSource(data.train, updates * task.batch),
            TruncatedSource(data.validation, validation_size),
        )

    object.__setattr__(short, "load_data", load_data)  # a Task is frozen; this copy is ours
    return short


def truncate_in_memory(task: Task, updates: int) -> Task:
    """Truncate a task whose sources are Tensors, keeping them Tensors; return others unchanged."""
    data = task.load_data()
    train, validation = data.train, data.validation
    if not (isinstance(train, Tensors) and isinstance(validation, Tensors)):
        return task
    at_N = torch.arange(updates * task.batch) % len(train)
    validation_size = min(task.batch, len(validation))
    excerpt = Data(
        Tensors(*(column[at_N] for column in train.columns)),
        Tensors(*(column[:validation_size] for column in validation.columns)),
    )
    short = copy(task)
    object.__setattr__(short, "load_data", lambda: excerpt)
    return short
