"""The fields of a task that differ among trials, as tensors that its losses read under vmap.

Axes: K trials.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.overrides import TorchFunctionMode

from trainables.task import Task
from trainables.vmapped.refusals import Unbatchable


class Fields:
    """A task in place of those of all trials, whose differing numbers are tensors under vmap.

    Args:
        tasks: of one class, in the order of their rows.
    """

    def __init__(self, tasks: Sequence[Task], like: Tensor) -> None:
        values_by_name = {
            name: [getattr(task, name) for task in tasks] for name in differing_fields(tasks)
        }
        self.values_K = {
            name: torch.tensor(values, dtype=like.dtype, device=like.device)
            for name, values in values_by_name.items()
            if all(isinstance(value, int | float) for value in values)
            and not any(isinstance(value, bool) for value in values)
        }
        self.read_fields: set[str] = set()
        self._current: Mapping[str, Tensor] = {}
        self.task = _with_readers(tasks[0], {name: self._reader(name) for name in values_by_name})

    def take(self, values: Mapping[str, Tensor]) -> None:
        """Use these values from now on: those of the current call under vmap."""
        self._current = values

    def _reader(self, name: str) -> Callable[[Task], object]:
        def read(_: Task) -> object:
            self.read_fields.add(name)
            if name not in self.values_K:
                raise Unbatchable(
                    f"field {name} differs among the trials, and the task reads it for its losses; "
                    "only numbers that enter into a formula may differ there"
                )
            return self._current[name]

        return read


def differing_fields(tasks: Sequence[Task]) -> list[str]:
    """Return the names of the fields that differ among tasks of one class."""
    first = tasks[0]
    return [
        field.name
        for field in dataclasses.fields(first)
        if any(getattr(task, field.name) != getattr(first, field.name) for task in tasks[1:])
    ]


def _with_readers(task: Task, readers: Mapping[str, Callable[[Task], object]]) -> Task:
    """Return a copy of a task in which these fields are properties."""
    if not readers:
        return task
    properties: dict[str, Any] = {name: property(reader) for name, reader in readers.items()}
    twin = copy.copy(task)
    fields = {field.name for field in dataclasses.fields(task)}
    for name in vars(task).keys() - fields:  # results of a cached_property are of one task alone
        del vars(twin)[name]
    kind = type(type(task).__name__, (type(task),), properties)
    object.__setattr__(twin, "__class__", kind)
    return twin


class TensorLabelSmoothing(TorchFunctionMode):
    """A mode in which cross-entropy accepts a tensor as label smoothing.

    Cross-entropy is affine in the smoothing (Szegedy et al., Rethinking the Inception Architecture,
    2016, section 7), so it follows from its values at 0 and at 1.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        share = named.get("label_smoothing")
        if func is cross_entropy and isinstance(share, Tensor):
            hard, soft = (func(*args, **{**named, "label_smoothing": at}) for at in (0.0, 1.0))
            return (1 - share) * hard + share * soft
        return func(*args, **named)
