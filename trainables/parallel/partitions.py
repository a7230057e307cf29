"""What DeepSpeed keeps of weights: flat tensors, of which each rank updates its part.

The weights of a parameter group lie one after the other in a flat tensor that is dealt out over
the ranks, so an optimizer's momenta are flat as well. Here they are given back the shapes, names
and numbers that they have in the task's own model, and are taken from there.

Source: Rajbhandari et al., ZeRO (2020), section 5.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

Kept = Mapping[str, object]  # what an optimizer remembers of one weight


@dataclass(frozen=True)
class Piece:
    """Where this rank's part of a weight lies in a flat tensor."""

    at: int  # in the flat tensor
    first: int  # of the weight's elements
    length: int

    def of(self, flat: Tensor) -> Tensor:
        """The part, of the flat weights or of one of their momenta."""
        return flat.narrow(0, self.at, self.length)

    def within(self, whole: Tensor) -> Tensor:
        """The same part of a weight that is all there."""
        return whole.reshape(-1).narrow(0, self.first, self.length)


@dataclass(frozen=True)
class Partitions:
    """The flat tensors of this rank, as one of DeepSpeed's optimizers has made them."""

    zero: Any  # DeepSpeedZeroOptimizer, or its namesake of stage 3
    stage: int
    rank: int

    @property
    def flats(self) -> Sequence[Tensor]:
        """The weights that this rank updates: one tensor a group, or a part of a group."""
        if self.stage == 3:
            found: Sequence[Tensor] = self.zero.fp32_partitioned_groups_flat
        else:
            found = self.zero.single_partition_of_fp32_groups
        return found

    @property
    def offloaded(self) -> bool:
        """Whether they stay in the CPU's memory."""
        return bool(self.zero.offload_optimizer if self.stage == 3 else self.zero.cpu_offload)

    def gradients(self) -> list[Tensor]:
        """Those that the next step takes; the live ones."""
        if self.offloaded:
            return [flat.grad for flat in self.flats if flat.grad is not None]
        held = [each for each in self.zero.averaged_gradients.values() if each is not None]
        return [gradient for each in held for gradient in each]

    def forget(self) -> None:
        """Leave nothing of gradients that no step took, nor of weights that the next skips."""
        self.zero.zero_grad()
        if self.stage == 3:
            if self.zero.grad_partitions_flat_buffer is not None:
                self.zero.grad_partitions_flat_buffer.zero_()
        else:
            self.zero.micro_step_id = -1  # DeepSpeed's own, before the first backward pass
            for at in self.zero.averaged_gradients:
                self.zero.averaged_gradients[at] = self.zero.all_grad_tensors[at] = None
        if self.offloaded:
            for flat in self.flats:
                if flat.grad is not None:
                    flat.grad.zero_()

    def give(self, states: Mapping[int, Kept]) -> None:
        """Deal out what the optimizer remembers, by the id of the weight that it is of.

        A count of steps becomes one for a whole group: the largest. What nothing is remembered
        of, where others of its group have moments, has moments of 0.
        """
        options = self.zero.optimizer.param_groups
        fused = any(each.get("fused") or each.get("capturable") for each in options)
        for flat, weights in zip(self.flats, self._groups, strict=True):
            known = [(weight, states[id(weight)]) for weight in weights if states.get(id(weight))]
            entry: dict[str, object] = {}
            for weight, kept in known:
                for key, value in kept.items():
                    if not isinstance(value, Tensor) or value.dim() == 0:
                        entry[key] = _later(entry.get(key), value, flat.device, fused)
                        continue
                    whole = entry.setdefault(key, torch.zeros_like(flat, dtype=value.dtype))
                    if (piece := self._piece(weight)) is not None and isinstance(whole, Tensor):
                        piece.of(whole).copy_(piece.within(value))
            if entry:
                self.zero.optimizer.state[flat] = entry

    def take(self, weight: Parameter, device: torch.device) -> dict[str, object]:
        """What the optimizer remembers of a weight, on the CPU of rank 0; elsewhere, its shape.

        All ranks call it together.

        Args:
            device: of messages.
        """
        flat = self.flats[self._where[id(weight)]]
        piece, shape = self._piece(weight), getattr(weight, "ds_shape", weight.shape)
        found: dict[str, object] = {}
        for key, value in self.zero.optimizer.state.get(flat, {}).items():
            if not isinstance(value, Tensor) or value.dim() == 0:
                found[key] = value.clone() if isinstance(value, Tensor) else value
                continue
            whole = torch.zeros(shape, dtype=value.dtype, device=device)
            if piece is not None:
                piece.within(whole).copy_(piece.of(value))
            dist.all_reduce(whole)
            found[key] = on_rank_0(whole, self.rank)
        return found

    @property
    def _groups(self) -> Sequence[Sequence[Parameter]]:
        """The weights in each flat tensor."""
        found: Sequence[Sequence[Parameter]] = (
            self.zero.fp16_groups if self.stage == 3 else self.zero.bit16_groups
        )
        return found

    @cached_property
    def _where(self) -> dict[int, int]:
        return {id(weight): at for at, group in enumerate(self._groups) for weight in group}

    def _piece(self, weight: Any) -> Piece | None:
        """None: other ranks have all of it."""
        if self.stage == 3:
            _, at, length = self.zero.grad_position[self.zero.get_param_id(weight)]
            first = self.rank * length
            length = min(length, weight.ds_numel - first)  # the last part is filled up
            return Piece(at, first, length) if length > 0 else None
        mapping = weight._hp_mapping
        if mapping is None:
            return None
        part, own = mapping.hp_fragment_address, mapping.lp_fragment_address
        return Piece(part.start, own.start, part.numel)


def on_rank_0(tensor: Tensor, rank: int) -> Tensor:
    """The values on the CPU; on other ranks only what shape they have."""
    return tensor.cpu() if rank == 0 else tensor.to("meta")


def twin(optimizer: Optimizer) -> Optimizer:
    """One of the same kind and options, with no memory, for tensors that DeepSpeed will give it."""
    made = copy(optimizer)
    made.param_groups = [
        {**group, "params": list(group["params"])}
        for group in optimizer.param_groups
        if group["params"]
    ]
    made.state = defaultdict(dict)
    return made


def _later(known: object, value: object, device: torch.device, fused: bool) -> object:
    """The larger of two counts of steps, where the optimizer wants it."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().clone().to(device if fused else "cpu")
    return torch.maximum(known, value) if isinstance(known, Tensor) else value
