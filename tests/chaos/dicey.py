"""A Task whose losses depend on every random number that was drawn before.

Axes: N samples, 1 channel, H by W pixels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.data import Batch, Data, Tensors
from trainables.task import Task

SAMPLES = 1280


@dataclass(frozen=True)
class Dicey(Task):
    """A small convolutional network with dropout and batch norm; 20 updates a step."""

    lr: float = 0.01
    batch: int = 64

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(512, 10),
        )

    def load_data(self) -> Data:
        generator = torch.Generator().manual_seed(1)
        x_N1HW = torch.randn(SAMPLES + 128, 1, 16, 16, generator=generator)
        y_N = x_N1HW[:, 0, :10, :10].sum(dim=1).argmax(dim=1)
        parts = (slice(SAMPLES), slice(SAMPLES, None))
        train, validation = (Tensors(x_N1HW[part], y_N[part]) for part in parts)
        return Data(train, validation)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        x_N1HW, y_N = batch
        return nn.functional.cross_entropy(model(x_N1HW), y_N, reduction="none")
