"""A copy of the model on every rank, and on each a part of the optimizer's state.

Each weight has a rank that updates it and tells the others. The task's optimizer stays what it is:
hooks around its steps let it see the gradients of this rank's weights only, so it keeps nothing of
the others. torch's ZeroRedundancyOptimizer makes one anew instead, from defaults that AdamW does
not take (torch 2.13), wants all weights in one format, and has rank 0 save all ranks' parts.

Source: Rajbhandari et al., ZeRO (2020), section 5.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from trainables.parallel.ddp import Ddp


@dataclass(frozen=True)
class Zero1(Ddp):
    """DistributedDataParallel, with the optimizer's state dealt out; a Strategy."""

    def adopt(self, optimizer: Optimizer) -> Optimizer:
        """The same optimizer; its state_dict has this rank's part of the state only."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        parts = shares(weights, self.worker.world_size)
        foreign = [
            weight for rank, part in enumerate(parts) for weight in part if rank != self.worker.rank
        ]
        gradients: list[Tensor | None] = []

        def before_step(*_: Any) -> None:
            for weight in foreign:
                gradients.append(weight.grad)
                weight.grad = None

        def after_step(*_: Any) -> None:
            for weight, gradient in zip(foreign, gradients, strict=True):
                weight.grad = gradient
            gradients.clear()
            for rank, part in enumerate(parts):
                _tell(part, rank)

        def after_load(found: Optimizer) -> None:
            for weight in foreign:
                found.state.pop(weight, None)

        optimizer.register_step_pre_hook(before_step)
        optimizer.register_step_post_hook(after_step)
        optimizer.register_load_state_dict_post_hook(after_load)
        return optimizer


def shares(weights: Sequence[Tensor], ranks: int) -> list[list[Tensor]]:
    """The weights that each rank updates, of about equal size: the largest first, to the emptiest.

    Source: Graham, Bounds on Multiprocessing Timing Anomalies (1969), section 5.
    """
    dealt: list[list[Tensor]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for weight in sorted(weights, key=torch.numel, reverse=True):
        rank = sizes.index(min(sizes))
        dealt[rank].append(weight)
        sizes[rank] += weight.numel()
    return dealt


@torch.no_grad()
def _tell(weights: Sequence[Tensor], rank: int) -> None:
    """Give every rank the values that one has, in as few messages as there are formats."""
    for _, group in groupby(sorted(weights, key=_format), key=_format):
        same = list(group)
        flat = torch.cat([weight.reshape(-1) for weight in same])
        dist.broadcast(flat, src=rank)
        values = flat.split([weight.numel() for weight in same])
        for weight, value in zip(same, values, strict=True):
            weight.copy_(value.view_as(weight))


def _format(weight: Tensor) -> str:
    return str(weight.dtype)
