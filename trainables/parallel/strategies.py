"""How ranks share the work of one model: alone, or with copies that average their gradients.

The process group is made by whoever started the ranks; here it is only used.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist
from torch import Tensor, nn

from trainables.worker import Worker


class Strategy(Protocol):
    """What the training loop asks of a way to use ranks."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model to train: its backward pass averages gradients over ranks."""
        ...

    def local(self, model: nn.Module) -> AbstractContextManager[None]:
        """Within it, gradients are added up on this rank only."""
        ...

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers (running means and such) of rank 0."""
        ...

    def sum(self, values: Tensor) -> Tensor:
        """The sum over ranks; may overwrite `values`."""
        ...


@dataclass(frozen=True)
class Single:
    """One rank; nothing to share."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return model

    def local(self, model: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def share_buffers(self, model: nn.Module) -> None:
        pass

    def sum(self, values: Tensor) -> Tensor:
        return values


def choose(worker: Worker) -> Strategy:
    """The strategy for this worker's ranks.

    Raises:
        ValueError: the training options and the number of ranks do not fit.
    """
    if worker.world_size == 1:
        return Single()
    if worker.training.strategy == "single":
        raise ValueError(
            f"training.strategy is single, but the trial has {worker.world_size} ranks; "
            "set it to ddp, or resources.workers to 1"
        )
    if not dist.is_initialized():
        raise ValueError(f"{worker.world_size} ranks, but no process group; initialize one first")
    from trainables.parallel.ddp import Ddp  # a second and a half that one rank need not spend

    return Ddp(worker.device)


def share(at: Tensor, worker: Worker) -> tuple[Tensor, int]:
    """This rank's part of a batch, and the weight of its samples.

    Every rank must take part in every collective, so one that would go without gets a sample
    of weight 0; all others have weight 1.
    """
    own = at[worker.rank :: worker.world_size]
    return (own, 1) if len(own) else (at[:1], 0)
