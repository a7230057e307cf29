"""A small convolutional network on scikit-learn's digits: 1,797 scanned digits of 8x8 pixels.

Axes: B samples, C classes.
Data: Alpaydin & Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.data import Batch, Data, Tensors
from trainables.task import Task

Optimizer = Literal["sgd", "adamw", "lars"]

CLASSES = 10
SIDE = 4  # pixels, once the stem has halved the image
WARMUP = 0.03  # share of the trial in which the learning rate rises
VALIDATION = 0.2  # share of the samples


@dataclass(frozen=True)
class DigitsCNN(Task):
    """Convolutions on digits; reports val/accuracy (a share), val/loss and train/loss."""

    lr: float = 6e-3
    batch: int = 64
    layers: int = 2  # convolutions, the stem included
    width: int = 64  # channels
    dropout: float = 0.3
    optimizer: Optimizer = "adamw"
    momentum: float = 0.9  # of sgd and lars
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer not in get_args(Optimizer):
            raise ValueError(
                f"optimizer is {self.optimizer!r}; choose one of {', '.join(get_args(Optimizer))}"
            )

    def build_model(self) -> nn.Module:
        hidden = [
            layer
            for _ in range(self.layers - 1)
            for layer in (nn.Conv2d(self.width, self.width, 3, padding=1), nn.ReLU())
        ]
        return nn.Sequential(
            nn.Conv2d(1, self.width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            *hidden,
            nn.Flatten(),
            nn.Dropout(self.dropout),
            nn.Linear(self.width * SIDE**2, CLASSES),
        )

    def load_data(self) -> Data:
        return digits()

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels_B = batch
        return cross_entropy(model(images), labels_B, reduction="none")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        images, labels_B = batch
        return class_metrics(model(images), labels_B)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = model.parameters()
        if self.optimizer == "adamw":
            return torch.optim.AdamW(weights, lr=self.lr, weight_decay=self.weight_decay)
        from trainables.optim.lars import Lars  # a second, which those who choose it wait

        kind = torch.optim.SGD if self.optimizer == "sgd" else Lars
        return kind(weights, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def scale_lr(self, progress: float) -> float:
        """Warm up briefly, then decay to 0 along half a cosine."""
        if progress < WARMUP:
            return (progress + WARMUP) / (2 * WARMUP)
        return 0.5 * (1 + math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP)))


def class_metrics(scores_BC: Tensor, labels_B: Tensor) -> Mapping[str, Tensor]:
    """Return the values of `Task.evaluate` for classes: accuracy_B (0 or 1) and loss_B (nats)."""
    return {
        "accuracy": scores_BC.argmax(dim=1) == labels_B,
        "loss": cross_entropy(scores_BC, labels_B, reduction="none"),
    }


@cache
def digits() -> Data:
    """Load 1,437 training and 360 validation samples: images (B, 1, 8, 8) in [-1, 1], labels (B,).

    The split is stratified and never changes, so trials and sweeps can be compared.
    """
    from sklearn.datasets import load_digits  # a second, which only ranks need to wait
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    split = train_test_split(pixels, labels, test_size=VALIDATION, stratify=labels, random_state=0)
    train, validation = (
        torch.tensor(part, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8 - 1 for part in split[:2]
    )
    train_labels, validation_labels = (torch.tensor(part) for part in split[2:])
    return Data(
        Tensors(train, train_labels),
        Tensors(validation, validation_labels),
        name="digits",
        source="https://archive.ics.uci.edu/dataset/80",
    )
