"""A task's fields where they differ among trials, as its losses read them: a value of each trial.

Axes: K trials.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode

from trainables.batched.refusals import Unbatchable

if TYPE_CHECKING:
    from trainables.task import Task


class Fields:
    """One task that stands for all: numbers that differ are tensors in it, under vmap.

    Args:
        tasks: of one class, in the order of their rows.
    """

    def __init__(self, tasks: Sequence["Task"], like: Tensor) -> None:
        found = {name: [getattr(task, name) for task in tasks] for name in differing(tasks)}
        self.values_K = {
            name: torch.tensor(values, dtype=like.dtype, device=like.device)
            for name, values in found.items()
            if all(isinstance(value, int | float) for value in values)
            and not any(isinstance(value, bool) for value in values)
        }
        self.read: set[str] = set()
        self._now: Mapping[str, Tensor] = {}
        self.task = _standing_in(tasks[0], {name: self._reader(name) for name in found})

    def take(self, values: Mapping[str, Tensor]) -> None:
        """From now on, give these values: those of vmap's pass."""
        self._now = values

    def _reader(self, name: str) -> Callable[["Task"], object]:
        def read(_: "Task") -> object:
            self.read.add(name)
            if name not in self.values_K:
                raise Unbatchable(
                    f"field {name} differs among the trials, and the task reads it for its losses; "
                    "only numbers that enter into a formula may differ there"
                )
            return self._now[name]

        return read


def differing(tasks: Sequence["Task"]) -> list[str]:
    """The names of the fields that are not the same in all tasks of one class."""
    first = tasks[0]
    return [
        field.name
        for field in dataclasses.fields(first)
        if any(getattr(task, field.name) != getattr(first, field.name) for task in tasks[1:])
    ]


def _standing_in(task: "Task", readers: Mapping[str, Callable[["Task"], object]]) -> "Task":
    """A copy of a task that reads these fields by functions."""
    if not readers:
        return task
    named: dict[str, Any] = {name: property(reader) for name, reader in readers.items()}
    twin = copy.copy(task)
    known = {field.name for field in dataclasses.fields(task)}
    for name in vars(task).keys() - known:  # what a cached_property keeps is of one task alone
        del vars(twin)[name]
    kind = type(type(task).__name__, (type(task),), named)
    object.__setattr__(twin, "__class__", kind)
    return twin


class Smoothing(TorchFunctionMode):
    """Within it, cross-entropy takes a label smoothing that is a tensor.

    It is affine in the smoothing (Szegedy et al., Rethinking the Inception Architecture, 2016,
    section 7), so its values at 0 and at 1 give all others.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        share = named.get("label_smoothing")
        if func is cross_entropy and isinstance(share, Tensor):
            hard, soft = (func(*args, **{**named, "label_smoothing": at}) for at in (0.0, 1.0))
            return (1 - share) * hard + share * soft
        return func(*args, **named)
