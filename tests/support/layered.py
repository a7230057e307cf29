"""A model of equal layers whose sizes powers of two divide, for counting what ranks exchange."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables import Data, Task, Tensors
from trainables.data import Batch

WIDTH = 64


@dataclass(frozen=True)
class Layered(Task):
    """Blocks of two linear layers, between two others; all are elements of an nn.Sequential."""

    batch: int = 256
    blocks: int = 6

    def build_model(self) -> nn.Module:
        blocks = (
            nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
            for _ in range(self.blocks)
        )
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), *blocks, nn.Linear(WIDTH, WIDTH))

    def load_data(self) -> Data:
        x_NF = torch.randn(600, WIDTH, generator=torch.Generator().manual_seed(1))
        return Data(Tensors(x_NF, x_NF.cos()), Tensors(x_NF[:30], x_NF[:30].cos()))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch[0]) - batch[1]).square()
