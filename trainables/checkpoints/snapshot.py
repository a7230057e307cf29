"""A training state as named tensors and small values, which are the content of a checkpoint.

Names are `model.NAME` for weights and buffers, `optimizer.NAME.KEY` for the optimizer's state of a
weight, `group.NUMBER.KEY` for options that the optimizer itself changes, and `average.NAME` for
averages (an Ema's, or an optimizer's own), where NAME is that in the task's own model. Names do not
depend on the strategy or the number of ranks, so each strategy can resume from another one's state.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainables.optim.averaging import Ema
from trainables.optim.chained import name_of
from trainables.optim.evaluation_mode import evaluation_weights, with_modes
from trainables.pretrained import fingerprints, frozen_base_names
from trainables.training_state.loop_state import TrainingState


class SnapshotSource(Protocol):
    """A saved training state, to restore from."""

    @property
    def name(self) -> str:
        """The name of the source, for messages."""
        ...

    @property
    def values(self) -> Mapping[str, object]:
        """The values that are not tensors, by name."""
        ...

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """Tensors of the full shape and dtype of each saved tensor, maybe without its values."""
        ...

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        """Copy the saved values into these tensors, or into this rank's shards of them."""
        ...


@dataclass(frozen=True)
class CheckpointSnapshot:
    """A training state at one moment; a Source."""

    tensors: dict[str, Tensor]
    values: dict[str, object] = field(default_factory=dict)
    name: str = "in memory"

    def fill(self, targets: Mapping[str, Tensor]) -> None:
        for name, target in targets.items():
            value = self.tensors[name]
            if isinstance(target, DTensor) and not isinstance(value, DTensor):
                _fill_shard(target, value)
            else:
                target.copy_(value)

    def copied(self) -> "CheckpointSnapshot":
        """Return a copy on the CPU, which training no longer changes."""
        copies = {name: _copy(tensor) for name, tensor in self.tensors.items()}
        if any(tensor.is_cuda for tensor in self.tensors.values()):
            torch.cuda.synchronize()
        return CheckpointSnapshot(copies, self.values, self.name)

    @property
    def size(self) -> int:
        """Size of all tensors over all ranks, in bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def take(state: TrainingState) -> CheckpointSnapshot:
    """Return a snapshot of the state; it shares the live tensors.

    Raises:
        ValueError: the optimizer updates a tensor that is no parameter of the model.
    """
    optimizer = state.optimizer
    entries = {f"model.{name}": value for name, value in model_entries(state.model).items()}
    names = [name for name, _ in named_parameters(state.model, optimizer)]
    for index, entry in optimizer.state_dict()["state"].items():
        entries |= {f"optimizer.{names[index]}.{key}": value for key, value in entry.items()}
    entries |= _changed_options(state)
    if state.average is not None:
        entries |= average_entries(state.average)
        entries["average"] = state.average.updates
    elif parts := with_modes(optimizer):
        with evaluation_weights(optimizer, state.model):
            for part in parts:
                for name, weight in named_parameters(state.model, part):
                    entries[f"average.{name}"] = weight.detach().clone()
        entries["average"] = 0
    tensors = {name: value for name, value in entries.items() if isinstance(value, Tensor)}
    values: dict[str, object] = {
        **{name: value for name, value in entries.items() if name not in tensors},
        "optimizer": name_of(optimizer),
        "scaler": state.scaler.state_dict(),
        "guard": None if state.spike_detector is None else state.spike_detector.state_dict(),
        "plateau": None if state.plateau is None else state.plateau.state_dict(),
        "slower": state.loop_state.lr_backoff,
        "each": state.loop_state.elements_per_sample,
        "samples": state.loop_state.samples,
        "tokens": state.loop_state.tokens,
        "tied": _tied(state.model),
        "base": fingerprints(state.model),
    }
    return CheckpointSnapshot(tensors, values)


def model_entries(model: nn.Module) -> dict[str, object]:
    """Return weights except a frozen base, persistent buffers, and extra state of modules."""
    outside = frozen_base_names(model)
    return {
        name: value
        for name, value in model.state_dict().items()
        # bitsandbytes puts the scales of a packed `weight` under `weight.absmax`, for example
        if outside.isdisjoint(accumulate(name.split("."), "{}.{}".format))
    }


def average_entries(average: Ema) -> dict[str, Tensor]:
    """Return the averages of weights, by their names in a checkpoint."""
    held = average.state_dict()["averages"]
    return {f"average.{name}": tensor for name, tensor in held.items()}


def _changed_options(state: TrainingState) -> dict[str, object]:
    """Return what updates changed in the optimizer's groups, by its names in a checkpoint."""
    return {
        f"group.{number}.{key}": value
        for number, (options, first) in enumerate(
            zip(state.group_options(), state.first_options, strict=True)
        )
        for key, value in options.items()
        if key not in first or not _equal(value, first[key])
    }


def _equal(value: object, other: object) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    return type(value) is type(other) and bool(value == other)


def _tied(model: nn.Module) -> dict[str, str]:
    """Return the further names of tied weights, each mapped to the weight's main name."""
    main_names = {id(weight): name for name, weight in model.named_parameters()}
    return {
        name: main_names[id(weight)]
        for name, weight in model.named_parameters(remove_duplicate=False)
        if name != main_names[id(weight)]
    }


def named_parameters(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, Tensor]]:
    """Yield the optimizer's parameters and their names, in the order of its state_dict."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise ValueError(
                    f"the optimizer updates a tensor of shape {tuple(parameter.shape)} that is no "
                    "parameter of the model, so no checkpoint would hold it; make it one"
                )
            yield names[id(parameter)], parameter


def _fill_shard(target: DTensor, whole: Tensor) -> None:
    """Copy a rank's shard into a DTensor, without any communication."""
    for chunk in target.__create_chunk_list__():
        part = whole
        for axis, (offset, length) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
            part = part.narrow(axis, offset, length)
        target.to_local().copy_(part)


def _copy(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    # A non-blocking copy goes to pinned memory, at several times the speed.
    return tensor.to("cpu", non_blocking=True) if tensor.is_cuda else tensor.clone()
