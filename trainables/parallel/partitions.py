"""DeepSpeed's flat tensors, which hold the weights and of which each rank updates its partition.

The weights of a parameter group lie one after the other in a flat tensor that is sharded over the
ranks, so an optimizer's momenta are flat as well. This module converts momenta between the flat
tensors and the shapes, names and numbers that they have in the task's own model.

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

WeightState = Mapping[str, object]  # an optimizer's state for one weight


@dataclass(frozen=True)
class Piece:
    """The location of this rank's part of a weight in a flat tensor."""

    at: int  # in the flat tensor
    first: int  # of the weight's elements
    length: int

    def of(self, flat: Tensor) -> Tensor:
        """Return the part within the flat weights, or within one of their flat momenta."""
        return flat.narrow(0, self.at, self.length)

    def within(self, whole: Tensor) -> Tensor:
        """Return the part within a complete weight."""
        return whole.reshape(-1).narrow(0, self.first, self.length)


@dataclass(frozen=True)
class Partitions:
    """The flat tensors of this rank, as made by one of DeepSpeed's optimizers."""

    zero: Any  # DeepSpeedZeroOptimizer, or DeepSpeedZeroOptimizer_Stage3
    stage: int
    rank: int

    @property
    def flats(self) -> Sequence[Tensor]:
        """Return the weights that this rank updates: one tensor a group, or a part of a group."""
        if self.stage == 3:
            tensors: Sequence[Tensor] = self.zero.fp32_partitioned_groups_flat
        else:
            tensors = self.zero.single_partition_of_fp32_groups
        return tensors

    @property
    def offloaded(self) -> bool:
        """Return whether the flat tensors stay in the CPU's memory."""
        return bool(self.zero.offload_optimizer if self.stage == 3 else self.zero.cpu_offload)

    def gradients(self) -> list[Tensor]:
        """Return the live gradients that the next step will use."""
        if self.offloaded:
            return [flat.grad for flat in self.flats if flat.grad is not None]
        groups = [group for group in self.zero.averaged_gradients.values() if group is not None]
        return [gradient for group in groups for gradient in group]

    def drop_gradients(self) -> None:
        """Drop gradients that no step used, and those of weights unused by the next passes."""
        self.zero.zero_grad()
        if self.stage == 3:
            if self.zero.grad_partitions_flat_buffer is not None:
                self.zero.grad_partitions_flat_buffer.zero_()
        else:
            self.zero.micro_step_id = -1  # DeepSpeed's value before the first backward pass
            for group in self.zero.averaged_gradients:
                self.zero.averaged_gradients[group] = self.zero.all_grad_tensors[group] = None
        if self.offloaded:
            for flat in self.flats:
                if flat.grad is not None:
                    flat.grad.zero_()

    def load_state(self, states: Mapping[int, WeightState]) -> None:
        """Load the optimizer's state, given by the ids of the weights, into the flat tensors.

        A group gets one count of steps: the largest of its weights'. A weight without state, in a
        group whose other weights have moments, gets moments of 0.
        """
        options = self.zero.optimizer.param_groups
        counts_on_device = any(group.get("fused") or group.get("capturable") for group in options)
        for flat, weights in zip(self.flats, self._groups, strict=True):
            stateful = [
                (weight, states[id(weight)]) for weight in weights if states.get(id(weight))
            ]
            entry: dict[str, object] = {}
            for weight, state in stateful:
                for key, value in state.items():
                    if not isinstance(value, Tensor) or value.dim() == 0:
                        entry[key] = _max_step_count(
                            entry.get(key), value, flat.device, counts_on_device
                        )
                        continue
                    flat_value = entry.setdefault(key, torch.zeros_like(flat, dtype=value.dtype))
                    if (piece := self._find_piece(weight)) is not None and isinstance(
                        flat_value, Tensor
                    ):
                        piece.of(flat_value).copy_(piece.within(value))
            if entry:
                self.zero.optimizer.state[flat] = entry

    def gather_state(self, weight: Parameter, device: torch.device) -> dict[str, object]:
        """Return the optimizer's state for a weight: on rank 0 on the CPU, elsewhere on meta.

        All ranks must call this together.

        Args:
            device: the device of messages between ranks.
        """
        flat = self.flats[self._group_of_weight[id(weight)]]
        piece, shape = self._find_piece(weight), getattr(weight, "ds_shape", weight.shape)
        state: dict[str, object] = {}
        for key, value in self.zero.optimizer.state.get(flat, {}).items():
            if not isinstance(value, Tensor) or value.dim() == 0:
                state[key] = value.clone() if isinstance(value, Tensor) else value
                continue
            full_value = torch.zeros(shape, dtype=value.dtype, device=device)
            if piece is not None:
                piece.within(full_value).copy_(piece.of(value))
            dist.all_reduce(full_value)
            state[key] = on_rank_0(full_value, self.rank)
        return state

    @property
    def _groups(self) -> Sequence[Sequence[Parameter]]:
        """Return the weights in each flat tensor."""
        groups: Sequence[Sequence[Parameter]] = (
            self.zero.fp16_groups if self.stage == 3 else self.zero.bit16_groups
        )
        return groups

    @cached_property
    def _group_of_weight(self) -> dict[int, int]:
        return {id(weight): index for index, group in enumerate(self._groups) for weight in group}

    def _find_piece(self, weight: Any) -> Piece | None:
        """Return this rank's part of a weight; None if other ranks have all of it."""
        if self.stage == 3:
            _, offset, length = self.zero.grad_position[self.zero.get_param_id(weight)]
            first = self.rank * length
            length = min(length, weight.ds_numel - first)  # the last partition is padded
            return Piece(offset, first, length) if length > 0 else None
        mapping = weight._hp_mapping
        if mapping is None:
            return None
        in_flat, in_weight = mapping.hp_fragment_address, mapping.lp_fragment_address
        return Piece(in_flat.start, in_weight.start, in_flat.numel)


def on_rank_0(tensor: Tensor, rank: int) -> Tensor:
    """Return the values on the CPU of rank 0, and on other ranks a meta tensor."""
    return tensor.cpu() if rank == 0 else tensor.to("meta")


def copy_without_state(optimizer: Optimizer) -> Optimizer:
    """Copy an optimizer with its options but without state, for DeepSpeed's tensors."""
    copied = copy(optimizer)
    copied.param_groups = [
        {**group, "params": list(group["params"])}
        for group in optimizer.param_groups
        if group["params"]
    ]
    copied.state = defaultdict(dict)
    return copied


def _max_step_count(known: object, value: object, device: torch.device, fused: bool) -> object:
    """Return the larger of two counts of steps, on the device where the optimizer wants it."""
    if not isinstance(value, Tensor):
        return value
    value = value.detach().clone().to(device if fused else "cpu")
    return torch.maximum(known, value) if isinstance(known, Tensor) else value
