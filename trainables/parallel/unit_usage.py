"""Weights that only some ranks use under FSDP: experts that a batch skips, heads chosen by sample.

Within a unit of FSDP, a weight without gradient on some ranks counts as a gradient of 0 there. A
weight that no rank used keeps no gradient, so momentum and weight decay leave it alone, as on one
rank. Units themselves must be used in the same order on every rank: weights are gathered and
gradients reduced by collectives, which know no names. They would mix the weights of different
units, or wait forever where a rank uses more units than another one. So ranks agree on the unit
before each of these collectives, and on the end of each pass.

torch tells neither which weights had a gradient nor which units are used, so the methods of its
parameter groups are wrapped (torch 2.13).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from trainables.parallel.agreement import END, Agreement


@dataclass
class UnitUsage:
    """The units and weights of a model that this rank uses, compared with the other ranks' use."""

    agreement: Agreement
    weights: list[Any] = field(default_factory=list)  # FSDP's records of the trained weights
    used: set[int] = field(default_factory=set)  # ids of those with a gradient

    def watch(self, model: nn.Module) -> None:
        """Watch from now on what passes of a sharded model use, but for those without samples."""
        for name, unit in model.named_modules():
            if not isinstance(unit, FSDPModule):
                continue
            unit.set_reduce_scatter_unused_params(True, recurse=False)
            for group in unit._get_fsdp_state()._fsdp_param_groups:
                self._watch_group(group, name or "the layers around the blocks", model)

    def _watch_group(self, group: Any, name: str, model: nn.Module) -> None:
        trained = [
            parameter for parameter in group.fsdp_params if parameter.sharded_param.requires_grad
        ]
        self.weights += trained
        unshard, pre_backward = group.unshard, group.pre_backward
        post_backward = group.post_backward

        def agreed_unshard(*args: Any) -> None:
            if group._all_gather_result is None and not group.is_unsharded:
                self.agreement.check(f"called {name}")
            unshard(*args)

        def plain_backward(*args: Any) -> None:
            if torch.is_grad_enabled():
                raise ValueError(
                    "training.strategy is fsdp, which frees weights after a backward pass, but the "
                    "task computes gradients of gradients (create_graph=True, as for a gradient "
                    "penalty), which need them again; choose ddp or zero1"
                )
            pre_backward(*args)

        def counted_backward(*unused: Any) -> None:
            if not getattr(model, "absent", False):
                self.used |= {id(weight) for weight in trained if _has_gradient(weight)}
            if group.reduce_grads and any(
                hasattr(parameter, "_unsharded_param") for parameter in trained
            ):
                self.agreement.check(f"had the gradients of {name}")
            post_backward(*unused)

        group.unshard, group.pre_backward = agreed_unshard, plain_backward
        group.post_backward = counted_backward

    def settle_gradients(self) -> None:
        """Take their gradient from weights that no rank used; all ranks call this together."""
        self.agreement.check(END)
        is_used = [id(weight) in self.used for weight in self.weights]
        used = torch.tensor(is_used, dtype=torch.uint8, device="cpu")
        self.used.clear()
        dist.all_reduce(used, dist.ReduceOp.MAX, self.agreement.ranks)
        for weight, anywhere in zip(self.weights, used.tolist(), strict=True):
            if not anywhere:
                weight.sharded_param.grad = None


def _has_gradient(weight: Any) -> bool:
    """Return whether passes have left a gradient in the gathered weight."""
    gathered = getattr(weight, "_unsharded_param", None)
    if gathered is None:
        return False
    return gathered.grad is not None or weight.unsharded_accumulated_grad is not None
