"""Frozen weights that the trials of a process hold once, and data sets likewise.

Each trial builds its own model. Frozen weights with equal bits are then moved to the same memory,
whatever their names are: peft's depend on what is adapted.
"""

import weakref
from collections.abc import Hashable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import Parameter

from trainables.lora.base import kept_weights
from trainables.pretrained import sample_values


class SharedBase:
    """The frozen weights and the samples of the trials that are alive in this process."""

    def __init__(self) -> None:
        self._held: dict[Hashable, list[weakref.ref[Tensor]]] = {}  # by a few of their values

    def share(self, model: nn.Module) -> None:
        """Let a model's frozen weights use the memory of equal ones of other models.

        Its trained weights get memory of their own. Call it once the strategy has sharded the
        model, before its first pass.

        Raises:
            ValueError: the model has no frozen weights.
        """
        frozen = [weight for weight in model.parameters() if not weight.requires_grad]
        if not frozen:
            raise ValueError(
                f"training.share_base: {type(model).__name__} has no frozen weights to share; "
                "train adapters (trainables.lora.adapt, or peft), or leave share_base out"
            )
        bases = {_memory(each).data_ptr() for each in (*self._alive(), *kept_weights())}
        for weight in model.parameters():
            if weight.requires_grad and _memory(weight).data_ptr() in bases:
                weight.data = weight.data.clone()
        for weight in frozen:
            if type(weight.data) in (Tensor, DTensor):  # load_base shares those of 4 bits
                self._share(weight)

    def shared(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return other trials' tensors in place of equal ones."""
        found = [(tensor, self._find(tensor)) for tensor in tensors]
        return tuple(tensor if same is None else same for tensor, same in found)

    def _share(self, weight: Parameter) -> None:
        same = self._find(weight)
        if same is not None and isinstance(weight.data, DTensor):
            weight._local_tensor = _memory(same)  # type: ignore[attr-defined]  # FSDP reads it later
        elif same is not None:
            weight.data = _memory(same)

    def _find(self, tensor: Tensor) -> Tensor | None:
        """Return an equal tensor of another trial, and remember this one for later trials."""
        memory = _memory(tensor)
        key = (memory.dtype, memory.shape, sample_values(memory).numpy().tobytes())
        held = self._held.setdefault(key, [])
        held[:] = [reference for reference in held if reference() is not None]
        others = (reference() for reference in held)
        same = (o for o in others if o is not None and _are_equal(_memory(o), memory))
        found = next(same, None)
        held.append(weakref.ref(tensor))
        return found

    def _alive(self) -> list[Tensor]:
        tensors = (reference() for held in self._held.values() for reference in held)
        return [tensor for tensor in tensors if tensor is not None]


def _memory(weight: Tensor) -> Tensor:
    """Return what this rank holds of a weight."""
    return weight.data.to_local() if isinstance(weight.data, DTensor) else weight.data


def _are_equal(one: Tensor, other: Tensor) -> bool:
    if one.device != other.device:
        return False
    same_memory = one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
    return same_memory or torch.equal(one, other)
