"""A training state as named tensors and small values: what a checkpoint holds.

Names are `model.NAME` of weights and buffers, `optimizer.NAME.KEY` of what the optimizer keeps of
a weight, and `average.NAME` of the averages; NAME is the one in the task's own model. Neither the
strategy nor the number of ranks shows in them, so each goes on from what another one saved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainables.fitting.state import TrainingState
from trainables.frozen import brought, fingerprints
from trainables.optim.averaging import Ema

WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")  # of recomputation, of torch.compile


class Source(Protocol):
    """What a training state is restored from."""

    @property
    def name(self) -> str:
        """What to call it in a message."""
        ...

    @property
    def values(self) -> Mapping[str, object]:
        """What is no tensor, by name."""
        ...

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Of each tensor, one that has its whole shape and its format."""
        ...

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        """Give these tensors, or this rank's parts of them, their values."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """A training state at one moment; a Source."""

    tensors: dict[str, Tensor]
    values: dict[str, object] = field(default_factory=dict)
    name: str = "in memory"

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        for name, target in targets.items():
            whole = self.tensors[name]
            if isinstance(target, DTensor) and not isinstance(whole, DTensor):
                _fill_shard(target, whole)
            else:
                target.copy_(whole)

    def copied(self) -> "Snapshot":
        """One on the CPU that training no longer changes."""
        copies = {name: _copy(tensor) for name, tensor in self.tensors.items()}
        if any(tensor.is_cuda for tensor in self.tensors.values()):
            torch.cuda.synchronize()
        return Snapshot(copies, self.values, self.name)

    @property
    def size(self) -> int:
        """Bytes of all tensors, over all ranks."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def take(state: TrainingState) -> Snapshot:
    """The state as it is now; its tensors are the live ones.

    Raises:
        ValueError: the optimizer updates what is no part of the model.
    """
    optimizer = own(state.optimizer)
    kept = {f"model.{name}": value for name, value in entries(state.model).items()}
    names = [name for name, _ in named_parameters(state.model, optimizer)]
    for at, entry in optimizer.state_dict()["state"].items():
        kept |= {f"optimizer.{names[at]}.{key}": value for key, value in entry.items()}
    if state.average is not None:
        kept |= averaged(state.average)
        kept["average"] = state.average.updates
    tensors = {name: value for name, value in kept.items() if isinstance(value, Tensor)}
    values: dict[str, object] = {
        **{name: value for name, value in kept.items() if name not in tensors},
        "optimizer": type(optimizer).__name__,
        "scaler": state.scaler.state_dict(),
        "guard": None if state.guard is None else state.guard.state_dict(),
        "plateau": None if state.plateau is None else state.plateau.state_dict(),
        "slower": state.marks.slower,
        "each": state.marks.each,
        "tied": _tied(state.model),
        "base": fingerprints(state.model),
    }
    return Snapshot(tensors, values)


def plain(name: str) -> str:
    """A parameter's name in the task's own model."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def entries(model: nn.Module) -> dict[str, object]:
    """Weights but those that were brought, persistent buffers, what get_extra_state says."""
    outside = brought(model)
    held = model.state_dict().items()
    return {plain(name): value for name, value in held if name not in outside}


def averaged(average: Ema) -> dict[str, Tensor]:
    """The averages of weights, as a checkpoint names them."""
    held = average.state_dict()["averages"]
    return {f"average.{plain(name)}": tensor for name, tensor in held.items()}


def _tied(model: nn.Module) -> dict[str, str]:
    """More names of weights that have several: to the one by which they are known elsewhere."""
    known = {id(each): plain(name) for name, each in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {plain(name): known[id(each)] for name, each in every if plain(name) != known[id(each)]}


def own(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer of this rank's parameters, which ZeroRedundancyOptimizer keeps within."""
    inner: torch.optim.Optimizer = getattr(optimizer, "optim", optimizer)
    return inner


def named_parameters(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor]]:
    """What the optimizer updates, in the order by which its state_dict numbers it."""
    known = {id(each): plain(name) for name, each in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in known:
                raise ValueError(
                    f"the optimizer updates a tensor of shape {tuple(parameter.shape)} that is no "
                    "parameter of the model, so no checkpoint would hold it; make it one"
                )
            yield known[id(parameter)], parameter


def _fill_shard(target: DTensor, whole: Tensor) -> None:
    """Give a DTensor its rank's part; no rank waits for another one."""
    for chunk in target.__create_chunk_list__():
        part = whole
        for axis, (offset, length) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            part = part.narrow(axis, offset, length)
        target.to_local().copy_(part)


def _copy(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    # Without waiting for it, the copy goes to pinned memory, at several times the speed.
    return tensor.to("cpu", non_blocking=True) if tensor.is_cuda else tensor.clone()
