"""Small tasks for trials training at once, and functions to train them alone and together.

Axes: N samples, B samples of a batch, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from trainables import Saved, Training, Worker
from trainables.data import Batch as Samples
from trainables.data import Data, Tensors
from trainables.task import Task
from trainables.vmapped.batch import Batch
from trainables.worker import LocalLink

EXACT = Training(precision="64-true")
ORDERS = count(1)  # each order has checkpoints of its own
KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class Small(Task):
    """Three classes, two layers; batches of 8, 8 and 7."""

    lr: float = 0.01
    batch: int = 8
    width: int = 6
    dropout: float = 0.0
    smoothing: float = 0.0
    kind: str = "adamw"
    decay: float = 0.0
    momentum: float = 0.9
    name: str = ""

    def build_model(self) -> nn.Module:
        first = [nn.Linear(4, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
        second = [nn.Linear(self.width, 5), nn.Tanh(), nn.Dropout(self.dropout / 2)]
        return nn.Sequential(*first, *second, nn.Linear(5, 3))

    def load_data(self) -> Data:
        x_NF = torch.randn(33, 4, generator=torch.Generator().manual_seed(1))
        y_N = x_NF.abs().argmax(dim=1) % 3
        return Data(Tensors(x_NF[:23], y_N[:23]), Tensors(x_NF[23:], y_N[23:]))

    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        x, y_B = batch
        return cross_entropy(model(x), y_B, reduction="none", label_smoothing=self.smoothing)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        weights = model.parameters()
        if self.kind == "^C":
            raise KeyboardInterrupt
        if self.kind in KINDS:
            return KINDS[self.kind](weights, lr=self.lr, weight_decay=self.decay)
        return torch.optim.SGD(
            weights,
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.decay,
            nesterov=self.kind == "nesterov",
        )


@dataclass(frozen=True)
class Images(Small):
    """Small with images: convolutions, pooling and batch norm."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),  # Adam would blow up the rounding of its 0
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(self.dropout),
            nn.Flatten(),
            nn.Linear(16, 3),
        )

    def load_data(self) -> Data:
        x = torch.randn(33, 1, 4, 4, generator=torch.Generator().manual_seed(1))
        y_N = x.flatten(1)[:, :3].argmax(dim=1)
        return Data(Tensors(x[:23], y_N[:23]), Tensors(x[23:], y_N[23:]))


@dataclass(frozen=True)
class Dropping(Small):
    """Small without its last batch of 7."""

    def load_data(self) -> Data:
        return replace(super().load_data(), drop_last=True)


@dataclass(frozen=True)
class Drawing(Small):
    """A task whose losses are draws of torch.nn.functional.dropout."""

    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        drawn = dropout(torch.ones(400, dtype=batch[0].dtype), 0.25)
        return drawn + 0 * model(batch[0]).sum()


def worker(until: int, seed: int, training: Training = EXACT, **changes: object) -> Worker:
    """Return the worker of a trial."""
    alone = Worker.alone(until=until, seed=seed, training=training)
    return replace(alone, trial=f"trial-{seed}", order=next(ORDERS), **changes)


def again(trial: Worker) -> Worker:
    """Return another worker of the same trial, from its beginning."""
    return replace(trial, order=next(ORDERS), link=LocalLink())


def continued(trial: Worker, saved: Saved, until: int) -> Worker:
    """Return a worker of the trial's next order, from a checkpoint."""
    return replace(again(trial), first=saved.step + 1, until=until, start=saved)


def together(tasks: Sequence[Task], trials: Sequence[Worker]) -> None:
    """Train the trials at once until all are over."""
    with Batch(len(tasks)) as batch:
        for task, trial in zip(tasks, trials, strict=True):
            batch.add(task, trial)
        finish(batch)


def finish(batch: Batch) -> None:
    """Train until no trial is left."""
    while batch.workers:
        for left in batch.epoch():
            if left.error is not None:
                raise left.error


def curve(trial: Worker) -> list[dict[str, float]]:
    """Return the reported metrics of learning by step, without those of time and memory."""
    return [
        {name: value for name, value in report.metrics.items() if not name.startswith("perf/")}
        for report in trial.reports
    ]


def gap(trials: Sequence[Worker], others: Sequence[Worker]) -> float:
    """Return the largest difference of two workers' reports; infinite if metrics differ."""
    largest = 0.0
    for own, theirs in zip(map(curve, trials), map(curve, others), strict=True):
        if [row.keys() for row in own] != [row.keys() for row in theirs]:
            return float("inf")
        for row, other in zip(own, theirs, strict=True):
            largest = max(largest, *(abs(row[name] - other[name]) for name in row))
    return largest
