"""Load a checkpoint into a training state, whatever strategy and world size wrote it."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor import empty as empty_dtensor

from trainables.checkpoints.snapshot import (
    SnapshotSource,
    average_entries,
    model_entries,
    named_parameters,
)
from trainables.modules import reshard
from trainables.optim.averaging import Ema
from trainables.optim.chained import name_of
from trainables.pretrained import fingerprints
from trainables.training_state.loop_state import TrainingState

SHOWN = 3  # names in a message


@dataclass(frozen=True)
class OptimizerEntry:
    """The state that an optimizer is to keep for one parameter."""

    parameter: Tensor
    prefix: str  # of its names in the checkpoint
    entry: dict[str, object]

    def tensors(self) -> dict[str, Tensor]:
        """Return the entry's tensors, by their names in the checkpoint."""
        named = ((f"{self.prefix}{key}", value) for key, value in self.entry.items())
        return {name: value for name, value in named if isinstance(value, Tensor)}


def restore(source: SnapshotSource, state: TrainingState, whole: bool = True) -> None:
    """Load weights, momenta, averages and loss scale into a state; the optimizer keeps its options.

    Args:
        whole: whether this rank's model has all parameters, be it as shards.

    Raises:
        ValueError: the source is of another model, or of another kind of optimizer.
    """
    optimizer = state.optimizer
    _check_optimizer(source, optimizer)
    _check_base(source, state.model)
    model_tensors = model_entries(state.model)
    targets = {
        f"model.{name}": value for name, value in model_tensors.items() if isinstance(value, Tensor)
    }
    if state.average is not None and "average" in source.values:
        targets |= average_entries(state.average)
    _check_model(source, targets, whole)
    optimizer_entries = list(_optimizer_entries(source, state.model, optimizer))
    options = _saved_options(source, state)
    with torch.no_grad():
        source.fill(
            targets
            | {
                name: tensor
                for saved in optimizer_entries
                for name, tensor in saved.tensors().items()
            }
            | {name: value for name, value in options.items() if isinstance(value, Tensor)}
        )
    _restore_extra_state(source, state.model, model_tensors)
    reshard(state.model)  # else a forward pass would use weights gathered before
    state_dict = optimizer.state_dict()
    state_dict["state"] = {
        index: saved.entry for index, saved in enumerate(optimizer_entries) if saved.entry
    }
    optimizer.load_state_dict(state_dict)  # with this order's own options
    _restore_options(options, state)
    _restore_values(source.values, state)
    if state.average is not None and "average" not in source.values:
        _begin_averages(state.average, state.model)


def _check_optimizer(source: SnapshotSource, optimizer: torch.optim.Optimizer) -> None:
    expected, saved = name_of(optimizer), source.values["optimizer"]
    if saved != expected:
        raise ValueError(
            f"checkpoint {source.name} holds the state of {saved}, this order trains with "
            f"{expected}; keep the optimizer of the trial that it came from"
        )


def _check_base(source: SnapshotSource, model: nn.Module) -> None:
    actual, saved = fingerprints(model), source.values.get("base")
    if saved and actual != saved:
        raise ValueError(
            f"checkpoint {source.name} rests on frozen weights of fingerprint {saved}, but the "
            f"task brings {actual or 'none'}; give it the pretrained weights of the trial that it "
            "came from"
        )


def _check_model(source: SnapshotSource, targets: Mapping[str, Tensor], whole: bool) -> None:
    tensors = source.tensors
    problems = [f"it lacks {name}" for name in targets if name not in tensors]
    problems += [
        f"{name} is {tuple(tensors[name].shape)} in it, {tuple(target.shape)} here"
        for name, target in targets.items()
        if name in tensors and tensors[name].shape != target.shape
    ]
    if whole:
        kinds = {_kind(name) for name in targets}
        problems += [
            f"it has {name} too" for name in tensors if name not in targets and _kind(name) in kinds
        ]
    if problems:
        more = f" and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise ValueError(
            f"checkpoint {source.name} is of another model: {', '.join(problems[:SHOWN])}{more}; "
            "a trial keeps the structure of the one that it goes on from"
        )


def _kind(name: str) -> str:
    return name.partition(".")[0]


def _optimizer_entries(
    source: SnapshotSource, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterable[OptimizerEntry]:
    """Yield the state of each parameter in the optimizer's order, tensors yet without values."""
    keys: dict[str, list[str]] = {}
    for name in (*source.tensors, *source.values):
        prefix, dot, key = name.rpartition(".")
        if dot and _kind(name) == "optimizer":
            keys.setdefault(f"{prefix}.", []).append(key)
    for name, parameter in named_parameters(model, optimizer):
        prefix = f"optimizer.{name}."
        entry: dict[str, object] = {}
        for key in keys.get(prefix, ()):
            like = source.tensors.get(f"{prefix}{key}")
            entry[key] = (
                source.values[f"{prefix}{key}"] if like is None else _empty(like, parameter)
            )
        yield OptimizerEntry(parameter, prefix, entry)


def _empty(like: Tensor, parameter: Tensor) -> Tensor:
    """Return an empty tensor for an optimizer's state of a parameter, sharded like the parameter.

    An unsharded one is on the CPU: the optimizer moves momenta to the device of the weights, and
    leaves its step counts on the CPU, where updates need not wait for them.
    """
    if not isinstance(parameter, DTensor) or not like.dim():
        return torch.empty(like.shape, dtype=like.dtype)
    if like.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=like.dtype, requires_grad=False)
    mesh = parameter.device_mesh
    placements = [Replicate()] * mesh.ndim
    return empty_dtensor(*like.shape, dtype=like.dtype, device_mesh=mesh, placements=placements)


def _saved_options(source: SnapshotSource, state: TrainingState) -> dict[str, object]:
    """Return what the optimizer had changed in its groups; tensors yet without values.

    Raises:
        ValueError: the optimizer has fewer groups here.
    """
    groups = len(state.first_options)
    options: dict[str, object] = {}
    for name in (*source.tensors, *source.values):
        if _kind(name) != "group" or "." not in name:
            continue
        _, number, key = name.split(".", 2)
        if int(number) >= groups:
            raise ValueError(
                f"checkpoint {source.name} has the state of group {number} of the optimizer, which "
                f"has {groups} groups here; keep the groups of the trial that it came from"
            )
        like, first = source.tensors.get(name), state.first_options[int(number)].get(key)
        if like is None:
            options[name] = source.values[name]
        else:
            device = first.device if isinstance(first, Tensor) else "cpu"
            options[name] = torch.empty(like.shape, dtype=like.dtype, device=device)
    return options


def _restore_options(saved: Mapping[str, object], state: TrainingState) -> None:
    """Give the optimizer's groups their first options, and those that it had changed."""
    groups = state.optimizer.param_groups
    for group, now, first in zip(groups, state.group_options(), state.first_options, strict=True):
        for key in now:
            del group[key]
        group.update(deepcopy(first))
    for name, value in saved.items():
        _, number, key = name.split(".", 2)
        groups[int(number)][key] = value


def _restore_extra_state(source: SnapshotSource, model: nn.Module, names: Iterable[str]) -> None:
    """Give modules the state that they returned from get_extra_state."""
    extra = {
        name: source.values[f"model.{name}"] for name in names if f"model.{name}" in source.values
    }
    if extra:
        model.load_state_dict(extra, strict=False)


def _restore_values(values: Mapping[str, object], state: TrainingState) -> None:
    scale, plateau, guard = values["scaler"], values["plateau"], values["guard"]
    if state.scaler.is_enabled() and isinstance(scale, dict) and scale:
        state.scaler.load_state_dict(scale)
    if state.plateau is not None and isinstance(plateau, Mapping):
        state.plateau.load_state_dict(plateau)
    if state.spike_detector is not None and isinstance(guard, Mapping):
        state.spike_detector.load_state_dict(guard)
    state.loop_state.lr_backoff = float(str(values["slower"]))
    state.loop_state.elements_per_sample = float(str(values["each"]))
    state.loop_state.samples = int(str(values["samples"]))
    state.loop_state.tokens = float(str(values["tokens"]))
    if state.average is not None:
        state.average.updates = int(str(values.get("average", 0)))


@torch.no_grad()
def _begin_averages(average: Ema, model: nn.Module) -> None:
    """Initialise the averages, which the checkpoint lacks, with the model's restored values."""
    averages = average_entries(average)
    for name, value in chain(model.named_parameters(), model.named_buffers()):
        key = f"average.{name}"
        if key in averages:
            averages[key].copy_(value)
