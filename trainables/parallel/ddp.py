"""A copy of the model on every rank, whose gradients are averaged as they appear."""

import gc
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

# The constructor of DistributedDataParallel would import torch._dynamo: 800 modules, some of which
# keep all frames of their import in a cycle (torch 2.13). The first model and its process group
# then outlived their order, and one exit in fifteen ended in "terminate called without an active
# exception". So the import is ours, and the cycle goes before there is a model.
gc.collect()


@dataclass(frozen=True)
class Ddp:
    """PyTorch's DistributedDataParallel; a Strategy."""

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
