"""Weights that only some ranks use under FSDP: experts that a batch skips, heads chosen by sample.

Within a unit of FSDP, a weight without gradient on some ranks counts as a gradient of 0 there. A
weight that no rank used keeps no gradient, so momentum and weight decay leave it alone, as on one
rank. Units themselves must be called in the same order on every rank: their weights are gathered by
collectives, which know no names, and would mix the weights of different units.

torch tells neither which weights had a gradient nor which units were called, so the methods of its
parameter groups are wrapped (torch 2.13).
"""

import zlib
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule


class UnequalCalls(ValueError):
    """Raised if ranks called different units of the model."""


@dataclass
class UnitUsage:
    """The units and weights that this rank used since the last comparison with the others.

    Ranks compare what their processes know, in the CPU's memory: no GPU is waited for.
    """

    ranks: dist.ProcessGroup | None  # passes messages in the CPU's memory; None: the default one
    weights: list[Any] = field(default_factory=list)  # FSDP's records of the trained weights
    used: set[int] = field(default_factory=set)  # ids of those with a gradient
    calls: bytearray = field(default_factory=bytearray)  # the units called, in order

    @classmethod
    def of(cls, device: torch.device) -> "UnitUsage":
        """Return the usage of a rank that trains on a device; all ranks call this together."""
        return cls(dist.new_group(backend="gloo") if device.type == "cuda" else None)

    def close(self) -> None:
        """Free the group."""
        if self.ranks is not None:
            dist.destroy_process_group(self.ranks)

    def watch(self, model: nn.Module) -> None:
        """Record from now on what passes of a sharded model use, but for those without samples."""
        units = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for number, unit in enumerate(units):
            unit.set_reduce_scatter_unused_params(True, recurse=False)
            for group in unit._get_fsdp_state()._fsdp_param_groups:
                self._watch_group(group, number.to_bytes(2, "big"), model)

    def _watch_group(self, group: Any, number: bytes, model: nn.Module) -> None:
        trained = [found for found in group.fsdp_params if found.sharded_param.requires_grad]
        self.weights += trained
        pre_forward, post_backward = group.pre_forward, group.post_backward

        def counted_forward(*args: Any) -> Any:
            self.calls += number
            return pre_forward(*args)

        def counted_backward(*unused: Any) -> Any:
            if not getattr(model, "absent", False):
                self.used |= {id(weight) for weight in trained if _has_gradient(weight)}
            return post_backward(*unused)

        group.pre_forward, group.post_backward = counted_forward, counted_backward

    def settle_gradients(self) -> None:
        """Take their gradient from weights that no rank used; all ranks call this together."""
        used = torch.tensor([id(weight) in self.used for weight in self.weights], dtype=torch.uint8)
        self.used.clear()
        dist.all_reduce(used, dist.ReduceOp.MAX, self.ranks)
        for weight, is_used in zip(self.weights, used.tolist(), strict=True):
            if not is_used:
                weight.sharded_param.grad = None

    def compare_calls(self) -> None:
        """Check that all ranks called the same units; all ranks call this together.

        Raises:
            UnequalCalls: they did not.
        """
        calls = zlib.crc32(self.calls)
        self.calls.clear()
        most = torch.tensor([calls, -calls])
        dist.all_reduce(most, dist.ReduceOp.MAX, self.ranks)
        if most.sum():
            raise UnequalCalls(
                "training.strategy is fsdp, but ranks called different blocks of the model for "
                "their samples, so weights of different blocks were mixed; call every block for "
                "every batch (times 0 where it does not count), or choose ddp or zero1"
            )


def _has_gradient(weight: Any) -> bool:
    """Return whether passes have left a gradient in the gathered weight."""
    gathered = getattr(weight, "_unsharded_param", None)
    if gathered is None:
        return False
    return gathered.grad is not None or weight.unsharded_accumulated_grad is not None
