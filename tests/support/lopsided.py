"""A Task whose rank 1 is slow, as on a node that throttles."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.data import Batch, Data, Tensors
from trainables.task import Task

QUICK_S, SLOW_S = 0.02, 0.1  # minimum seconds per update, of rank 0 and rank 1


@dataclass(frozen=True)
class Lopsided(Task):
    """A linear model with four updates a step, slow on rank 1."""

    lr: float = 0.1
    batch: int = 4

    def build_model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def load_data(self) -> Data:
        x_N2, y_N = torch.ones(16, 2), torch.ones(16)
        return Data(Tensors(x_N2, y_N), Tensors(x_N2[:2], y_N[:2]))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        if model.training:
            time.sleep(SLOW_S if self.slow() else QUICK_S)
        x_N2, y_N = batch
        return (model(x_N2)[:, 0] - y_N) ** 2

    def slow(self) -> bool:
        return dist.get_rank() == 1


@dataclass(frozen=True)
class Throttled(Lopsided):
    """Slow on the second node of a cluster on this machine, whichever rank runs there."""

    def slow(self) -> bool:
        import ray

        return ray.util.get_node_ip_address() == "127.0.0.4"
