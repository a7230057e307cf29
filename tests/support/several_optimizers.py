"""Tasks with several optimizers: some that step together, some that take turns (a GAN), and one
with other weights for evaluation.

Axes: N samples, B samples of a batch, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import schedulefree
import torch
from tasks import Deep
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.optim import SGD, AdamW, Muon, Optimizer

from trainables.data import Batch, Data, Tensors
from trainables.task import Task


@dataclass(frozen=True)
class Paired(Deep):
    """Deep with Muon for its square matrix and SGD for the rest; with dropout if wanted."""

    def build_optimizer(self, model: nn.Module) -> list[Optimizer]:
        weights = dict(model.named_parameters())
        matrix = next(name for name, weight in weights.items() if weight.shape == (8, 8))
        return [
            Muon([weights.pop(matrix)], lr=self.lr),
            SGD(weights.values(), lr=self.lr, momentum=0.9),
        ]


class Networks(nn.Module):
    """A generator and a discriminator; `called` says which of them computes."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))
        self.discriminator = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, called: str, x_BF: Tensor) -> Tensor:
        return getattr(self, called)(x_BF)


@dataclass(frozen=True)
class Forging(Task):
    """A GAN on points of three numbers; noise is part of the samples, or drawn.

    The discriminator's turn has two losses a sample, the generator's has one.
    """

    lr: float = 0.01
    batch: int = 8
    draws: bool = False
    fits: int = 10**6  # samples that memory has room for in the generator's turn

    def build_model(self) -> nn.Module:
        return Networks()

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        real_NF = torch.randn(38, 3, generator=generator, dtype=torch.float64).cumsum(dim=1)
        noise_NF = torch.randn(38, 2, generator=generator, dtype=torch.float64)
        columns = (real_NF, noise_NF)
        return Data(Tensors(*(c[:30] for c in columns)), Tensors(*(c[30:] for c in columns)))

    def compute_turn(self, turn: str, model: nn.Module, batch: Batch) -> Tensor:
        real_BF, noise_BF = batch
        if self.draws:
            noise_BF = torch.randn_like(noise_BF)
        forged_BF = model("generator", noise_BF)
        if turn == "generator":
            if len(real_BF) > self.fits:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return softplus(-model("discriminator", forged_BF)).squeeze(1)
        both = model("discriminator", torch.cat([real_BF, forged_BF.detach()])).squeeze(1)
        signs = torch.ones(len(both)).to(both)
        signs[: len(real_BF)] = -1.0
        return softplus(signs * both)

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        real_BF, noise_BF = batch
        return {"gap": (model("generator", noise_BF) - real_BF).abs().mean(dim=1)}

    def build_optimizer(self, model: nn.Module) -> Mapping[str, Optimizer]:
        return {
            "discriminator": SGD(model.discriminator.parameters(), lr=self.lr, momentum=0.9),
            "generator": AdamW(model.generator.parameters(), lr=self.lr),
        }


@dataclass(frozen=True)
class ScheduleFree(Deep):
    """Deep with the schedule-free AdamW."""

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        return schedulefree.AdamWScheduleFree(model.parameters(), lr=self.lr)


@dataclass(frozen=True)
class HalfScheduleFree(Deep):
    """Deep with the schedule-free AdamW for its first layer, and SGD for the others."""

    def build_optimizer(self, model: nn.Module) -> list[Optimizer]:
        weights = list(model.parameters())
        return [
            schedulefree.AdamWScheduleFree(weights[:2], lr=self.lr),
            SGD(weights[2:], lr=self.lr),
        ]
