"""Checks that trials can train at once in one process; errors say what is in the way."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType

import torch
from torch import Tensor, nn

from trainables.data import Data, Tensors
from trainables.task import Task
from trainables.training import Training
from trainables.vmap_options import PER_TRIAL, as_text, unsupported
from trainables.worker import Worker

BOOKKEEPING = frozenset(vars(nn.Module()))  # torch's own attributes: weights, modules, hooks, mode


class Unbatchable(ValueError):
    """The trial cannot train at once with others; the message says what is in the way."""


def check_options(worker: Worker, others: Training | None) -> None:
    """Refuse options that a batch does not support, or that differ from those of its trials."""
    training = worker.training
    for name, values in unsupported(training):
        raise Unbatchable(
            f"training.{name} is {as_text(getattr(training, name))}; trials that train at once "
            f"know {values}"
        )
    if worker.world_size > 1:
        raise Unbatchable(
            f"a trial has {worker.world_size} workers; trials that train at once have 1"
        )
    if worker.nan != "stop":
        raise Unbatchable(f"failure.nan is {worker.nan}; trials that train at once know stop")
    for field in dataclasses.fields(training):
        own, theirs = getattr(training, field.name), getattr(others or training, field.name)
        if field.name not in PER_TRIAL and own != theirs:
            raise Unbatchable(
                f"training.{field.name} is {as_text(own)}, and {as_text(theirs)} in the trials "
                "that it would train with; fix it, or search what may differ"
            )


def check_tasks(task: Task, other: Task) -> None:
    """Refuse tasks of another class, and batches of another size."""
    if type(task) is not type(other):
        raise Unbatchable(f"it is a {type(task).__name__}, the others are {type(other).__name__}")
    if task.batch != other.batch:
        raise Unbatchable(
            f"field batch is {task.batch}, and {other.batch} in the trials that it would train "
            "with; trials that train at once have batches of one size"
        )


def check_data(data: Data, other: Data) -> None:
    """Refuse samples that are not in memory, or differ from those of the other trials."""
    for name in ("train", "validation"):
        own, theirs = getattr(data, name), getattr(other, name)
        if not isinstance(own, Tensors):
            raise Unbatchable(
                f"load_data: {name} is {type(own).__name__}; trials that train at once take "
                "Tensors, which are in memory"
            )
        if own is not theirs and not _same(own.columns, theirs.columns):
            raise Unbatchable(
                f"load_data gives other samples in {name} than the trials have that it would train "
                "with; let them not depend on what differs"
            )


def check_model(model: nn.Module, other: nn.Module, names: Sequence[str]) -> None:
    """Refuse a model of another structure.

    Args:
        names: of the task's fields that differ, for the message.
    """
    hint = f"; the fields that differ are {', '.join(names)}" if names else ""
    own, theirs = _shapes(model), _shapes(other)
    for name in (*theirs, *own):
        if own.get(name) != theirs.get(name):
            raise Unbatchable(
                f"{name} is {own.get(name, 'not there')} in its model, and "
                f"{theirs.get(name, 'not there')} in those of the trials that it would train with"
                f"{hint}"
            )
    pairs = zip(model.named_modules(), other.modules(), strict=True)
    for (name, module), twin in pairs:
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise Unbatchable(f"{_module(name)} keeps state that is no tensor (get_extra_state)")
        before = _attributes(twin)
        for key, value in _attributes(module).items():
            if not _equal(value, before.get(key)):
                raise Unbatchable(
                    f"{_module(name)} has {key} {value!r}, and {before.get(key)!r} in the trials "
                    f"that it would train with{hint}; of modules, only the rate of nn.Dropout may "
                    "differ"
                )


def _shapes(model: nn.Module) -> dict[str, object]:
    """Return the structure that must be equal: kinds of modules, shapes, trained tensors."""
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers())
    kinds = model.named_modules(remove_duplicate=False)
    return {
        **{name: tuple(tensor.shape) for name, tensor in tensors},
        **{f"requires_grad of {name}": tensor.requires_grad for name, tensor in tensors},
        **{_module(name): type(module).__qualname__ for name, module in kinds},
    }


def _attributes(module: nn.Module) -> Mapping[str, object]:
    """Return a module's attributes but its weights, and but the rate of nn.Dropout."""
    skipped = {*BOOKKEEPING, *(("p",) if type(module) is nn.Dropout else ())}
    return {key: value for key, value in vars(module).items() if key not in skipped}


def _equal(one: object, other: object) -> bool:
    """Return whether two values are certainly the same."""
    if one is other:
        return True
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__func__ is other.__func__
    if isinstance(one, FunctionType) and isinstance(
        other, FunctionType
    ):  # each model makes its own
        closures = [(function.__closure__, function.__defaults__) for function in (one, other)]
        return one.__code__ is other.__code__ and closures == [(None, None)] * 2
    try:
        return type(one) is type(other) and bool(one == other)
    except (RuntimeError, TypeError, ValueError):
        return False


def _module(name: str) -> str:
    return f"module {name}" if name else "the model"


def _same(own: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    if len(own) != len(theirs):
        return False
    return all(a is b or torch.equal(a, b) for a, b in zip(own, theirs, strict=True))
