"""How ranks share the work of one model: alone, or with copies that average their gradients.

The process group is made by whoever started the ranks; here it is only used.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

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


@dataclass(frozen=True)
class Ddp:
    """A copy of the model on every rank; PyTorch's DistributedDataParallel."""

    device: torch.device

    def wrap(self, model: nn.Module) -> nn.Module:
        on_gpu = self.device.type == "cuda"
        return DistributedDataParallel(model, device_ids=[self.device] if on_gpu else None)

    def local(self, model: nn.Module) -> AbstractContextManager[None]:
        if not isinstance(model, DistributedDataParallel):
            raise TypeError(f"model is {type(model).__name__}; wrap it before training")
        return model.no_sync()

    def share_buffers(self, model: nn.Module) -> None:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)

    def sum(self, values: Tensor) -> Tensor:
        dist.all_reduce(values)
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
    return Ddp(worker.device)


def share(at: Tensor, worker: Worker) -> tuple[Tensor, int]:
    """This rank's part of a batch, and the weight of its samples.

    Every rank must take part in every collective, so one that would go without gets a sample
    of weight 0; all others have weight 1.
    """
    own = at[worker.rank :: worker.world_size]
    return (own, 1) if len(own) else (at[:1], 0)
