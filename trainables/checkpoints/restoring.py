"""How a training state takes up what a checkpoint holds, whoever wrote it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor import empty as empty_dtensor

from trainables.checkpoints.snapshot import Source, averaged, entries, named_parameters, own, plain
from trainables.fitting.state import TrainingState
from trainables.frozen import fingerprints

SHOWN = 3  # names in a message


@dataclass(frozen=True)
class Held:
    """What an optimizer is to keep of one parameter."""

    parameter: Tensor
    prefix: str  # of the names in the checkpoint
    entry: dict[str, object]

    def tensors(self) -> dict[str, Tensor]:
        """By their names in the checkpoint."""
        found = ((f"{self.prefix}{key}", value) for key, value in self.entry.items())
        return {name: value for name, value in found if isinstance(value, Tensor)}


def restore(source: Source, state: TrainingState, whole: bool = True) -> None:
    """Put weights, momenta, averages and scale into a state; the optimizer keeps its options.

    Args:
        whole: this rank's model has all parameters, if not all of each.

    Raises:
        ValueError: the source is of another model, or of another kind of optimizer.
    """
    optimizer = own(state.optimizer)
    _check_optimizer(source, optimizer)
    _check_base(source, state.model)
    known = entries(state.model)
    targets = {f"model.{name}": each for name, each in known.items() if isinstance(each, Tensor)}
    if state.average is not None and "average" in source.values:
        targets |= averaged(state.average)
    _check_model(source, targets, whole)
    held = list(_held(source, state.model, optimizer))
    with torch.no_grad():
        source.fill(
            targets | {name: value for each in held for name, value in each.tensors().items()}
        )
    _take_over_extra(source, state.model, known)
    for module in state.model.modules():  # else a pass would use what it gathered before
        if isinstance(module, FSDPModule):
            module.reshard()
    packed = optimizer.state_dict()
    packed["state"] = {at: each.entry for at, each in enumerate(held) if each.entry}
    optimizer.load_state_dict(packed)  # the options in it are the order's own: they win
    _take_over_values(source.values, state)


def _check_optimizer(source: Source, optimizer: torch.optim.Optimizer) -> None:
    wanted, found = type(optimizer).__name__, source.values["optimizer"]
    if found != wanted:
        raise ValueError(
            f"checkpoint {source.name} holds the state of {found}, this order trains with "
            f"{wanted}; keep the optimizer of the trial that it came from"
        )


def _check_base(source: Source, model: nn.Module) -> None:
    wanted, found = fingerprints(model), source.values.get("base")
    if found and wanted != found:
        raise ValueError(
            f"checkpoint {source.name} rests on frozen weights of fingerprint {found}, but the "
            f"task brings {wanted or 'none'}; give it the pretrained weights of the trial that it "
            "came from"
        )


def _check_model(source: Source, targets: Mapping[str, Tensor], whole: bool) -> None:
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


def _held(source: Source, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterable[Held]:
    """What to keep of each parameter, in the optimizer's order; tensors have no values yet."""
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
        yield Held(parameter, prefix, entry)


def _empty(like: Tensor, parameter: Tensor) -> Tensor:
    """A place for what an optimizer keeps of a parameter, dealt out as that is.

    On the CPU where it is not dealt out: the optimizer moves its momenta to the weights, and leaves
    its counts of steps, which each update would otherwise wait for.
    """
    if not isinstance(parameter, DTensor) or not like.dim():
        return torch.empty(like.shape, dtype=like.dtype)
    if like.shape == parameter.shape:
        return torch.empty_like(parameter, dtype=like.dtype, requires_grad=False)
    mesh = parameter.device_mesh
    everywhere = [Replicate()] * mesh.ndim
    return empty_dtensor(*like.shape, dtype=like.dtype, device_mesh=mesh, placements=everywhere)


def _take_over_extra(source: Source, model: nn.Module, known: Iterable[str]) -> None:
    """Give modules what they said with get_extra_state."""
    extra = {
        name: source.values[f"model.{name}"] for name in known if f"model.{name}" in source.values
    }
    if extra:
        model.load_state_dict(extra, strict=False)


def _take_over_values(values: Mapping[str, object], state: TrainingState) -> None:
    scale, plateau, guard = values["scaler"], values["plateau"], values["guard"]
    if state.scaler.is_enabled() and isinstance(scale, dict) and scale:
        state.scaler.load_state_dict(scale)
    if state.plateau is not None and isinstance(plateau, Mapping):
        state.plateau.load_state_dict(plateau)
    if state.guard is not None and isinstance(guard, Mapping):
        state.guard.load_state_dict(guard)
    state.marks.slower = float(str(values["slower"]))
    state.marks.each = float(str(values.get("each", 1.0)))
    if state.average is not None:
        state.average.updates = int(str(values.get("average", 0)))
        if "average" not in values:
            _begin_average(state)


@torch.no_grad()
def _begin_average(state: TrainingState) -> None:
    """Averaging that was not on before begins at the restored weights."""
    assert state.average is not None
    averages = averaged(state.average)
    for name, value in state.model.named_parameters():
        if (average := averages.get(f"average.{plain(name)}")) is not None:
            average.copy_(value)
