"""A task that stops after a few updates, to see what they take; all else is as it is."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainables.data import Batch, Data, Source, Tensors

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass(frozen=True)
class Excerpt(Source):
    """So many samples of a source; from its beginning again where it has fewer."""

    source: Source
    length: int

    def __len__(self) -> int:
        return self.length

    def to(self, device: torch.device, dtype: torch.dtype) -> "Excerpt":
        return Excerpt(self.source.to(device, dtype), self.length)

    def batch(self, at_B: Tensor) -> Batch:
        return self.source.batch(at_B % len(self.source))

    @property
    def home(self) -> torch.device:
        return self.source.home

    def plan(self, upcoming: Iterable[Tensor], seed: int) -> None:
        self.source.plan((at_B % len(self.source) for at_B in upcoming), seed)

    def waited(self) -> float:
        return self.source.waited()

    def close(self) -> None:
        self.source.close()


def excerpt(task: "Task", updates: int) -> "Task":
    """The same task, whose epoch is so many whole updates and whose evaluation is one batch."""
    short = copy(task)

    def load_data() -> Data:
        data = task.load_data()
        judged = min(task.batch, len(data.validation))
        return Data(Excerpt(data.train, updates * task.batch), Excerpt(data.validation, judged))

    object.__setattr__(short, "load_data", load_data)  # a Task is frozen; this copy is ours
    return short


def excerpt_in_memory(task: "Task", updates: int) -> "Task":
    """The same of a task whose samples are Tensors, as Tensors; of others, the task itself."""
    data = task.load_data()
    train, validation = data.train, data.validation
    if not (isinstance(train, Tensors) and isinstance(validation, Tensors)):
        return task
    at_N = torch.arange(updates * task.batch) % len(train)
    judged = min(task.batch, len(validation))
    found = Data(
        Tensors(*(column[at_N] for column in train.columns)),
        Tensors(*(column[:judged] for column in validation.columns)),
    )
    short = copy(task)
    object.__setattr__(short, "load_data", lambda: found)
    return short
