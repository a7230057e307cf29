"""ZeRO stage 1: a copy of the model on every rank, with the optimizer's state sharded over ranks.

Each weight has one rank that updates it and sends it to the others. The task's optimizer is kept:
hooks around its steps show it the gradients of this rank's weights only, so it keeps no state of
the others. torch's ZeroRedundancyOptimizer makes a new optimizer instead, from defaults that AdamW
does not take (torch 2.13), wants all weights in one format, and has rank 0 save all ranks' parts.

Source: Rajbhandari et al., ZeRO (2020), section 5.1.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.optim import Optimizer

from trainables.optim.chained import parts_of, weights_of
from trainables.parallel.averaging import exchange
from trainables.parallel.ddp import Ddp

STEPS = 8  # of an optimizer on trial; the number of DAdaptAdaGrad still is alike after 4


@dataclass(frozen=True)
class Zero1(Ddp):
    """DistributedDataParallel with the optimizer's state sharded over ranks; a Strategy."""

    def setup_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Let the optimizer update and remember this rank's share of the weights only.

        Raises:
            ValueError: what it learns for a weight depends on the others.
        """
        for part in parts_of(optimizer):
            self._share_out(part)
        return optimizer

    def _share_out(self, optimizer: Optimizer) -> None:
        if looks_at_all_weights(optimizer):
            raise ValueError(
                f"training.strategy is zero1, but a step of {type(optimizer).__name__} computes a "
                "number from all weights, of which each rank would see its share only; choose ddp"
            )
        parts = divide_weights(weights_of(optimizer), self.worker.world_size)
        others_weights = [
            weight for rank, part in enumerate(parts) for weight in part if rank != self.worker.rank
        ]
        others_gradients: list[Tensor | None] = []

        def before_step(*_: Any) -> None:
            for weight in others_weights:
                others_gradients.append(weight.grad)
                weight.grad = None

        def after_step(*_: Any) -> None:
            for weight, gradient in zip(others_weights, others_gradients, strict=True):
                weight.grad = gradient
            others_gradients.clear()
            for rank, part in enumerate(parts):
                exchange(part, partial(dist.broadcast, src=rank))

        def after_load(found: Optimizer) -> None:
            for weight in others_weights:
                found.state.pop(weight, None)

        optimizer.register_step_pre_hook(before_step)
        optimizer.register_step_post_hook(after_step)
        optimizer.register_load_state_dict_post_hook(after_load)


def looks_at_all_weights(optimizer: Optimizer) -> bool:
    """Return whether what an optimizer learns for a weight depends on its other weights.

    A copy of it updates a small weight twice: beside another one whose gradient is small and
    steady, and beside one whose gradient is large and changes its sign. Optimizers that cannot
    update small weights on the CPU, or that drive others, count as fine.
    """
    if any(isinstance(part, Optimizer) for part in vars(optimizer).values()):
        return False
    with unset_fake_temporarily():  # in a forecast of memory tensors have no values
        try:
            first, second = (_updated(optimizer, *others) for others in ((0.1, 1), (9.0, -1)))
        except Exception:  # noqa: BLE001 - code of any library
            return False
        return not torch.allclose(first, second, rtol=1e-9, atol=0.0)


def _updated(optimizer: Optimizer, size: float, sign: int) -> Tensor:
    """Return a weight after some steps of a copy of the optimizer, beside another weight.

    Args:
        size: of the other weight's gradient.
        sign: factor on this gradient from one step to the next.
    """
    group = next(group for group in optimizer.param_groups if group["params"])
    shape = (4,) * group["params"][0].ndim
    weights = [torch.nn.Parameter(torch.full(shape, 0.5, dtype=torch.float64)) for _ in range(2)]
    tried = _untrained_copy(optimizer, group, weights)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for number in range(STEPS):
            for weight, value in zip(weights, (0.1, size * sign**number), strict=True):
                weight.grad = torch.full(shape, value, dtype=torch.float64)
            tried.step()
    return weights[0].detach()


def _untrained_copy(
    optimizer: Optimizer, group: Mapping[str, Any], weights: list[torch.nn.Parameter]
) -> Optimizer:
    """Return an optimizer of other weights that shares nothing which a step could change.

    copy.copy would leave out all attributes but torch's own, which a step of it may read.

    Args:
        group: whose options hold for these weights.
    """
    tried = object.__new__(type(optimizer))
    real = weights_of(optimizer)
    memo: dict[int, Any] = {id(weight): weight for weight in real} | {id(optimizer): tried}
    for name, value in vars(optimizer).items():
        # A step of the instance is a wrapper, as that of torch's schedules, around the real one.
        if name in ("param_groups", "state", "step"):
            continue
        if name.endswith("_hooks"):
            vars(tried)[name] = OrderedDict()
            continue
        try:
            vars(tried)[name] = deepcopy(value, memo)
        except Exception:  # noqa: BLE001 - a lock, a group of processes, ...
            vars(tried)[name] = value
    options = {name: deepcopy(value, memo) for name, value in group.items() if name != "params"}
    tried.param_groups, tried.state = [{**options, "params": weights}], defaultdict(dict)
    return tried


def divide_weights(weights: Sequence[Tensor], ranks: int) -> list[list[Tensor]]:
    """Return the weights that each rank updates, of about equal size.

    The largest weights go first, each to the rank that has the fewest elements so far.

    Source: Graham, Bounds on Multiprocessing Timing Anomalies (1969), section 5.
    """
    shares_of_ranks: list[list[Tensor]] = [[] for _ in range(ranks)]
    sizes = [0] * ranks
    for weight in sorted(weights, key=torch.numel, reverse=True):
        rank = sizes.index(min(sizes))
        shares_of_ranks[rank].append(weight)
        sizes[rank] += weight.numel()
    return shares_of_ranks
