"""Task: a PyTorch trainable that says what to learn; the runtime (loop.py) does the rest.

Axes: N samples of a source, B samples of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from trainables.worker import Worker

Batch = tuple[Tensor, ...]


class Source(Protocol):
    """Samples that can be picked by position."""

    def __len__(self) -> int: ...

    def to(self, device: torch.device, dtype: torch.dtype) -> "Source":
        """The same samples where the rank computes; `dtype` is for floating-point values."""
        ...

    def batch(self, at_B: Tensor) -> Batch:
        """The samples at these positions (whole numbers on the source's device)."""
        ...


class Tensors:
    """A source that fits into the device's memory: a batch is one index into each column."""

    def __init__(self, *columns: Tensor) -> None:
        if len({len(column) for column in columns}) != 1:
            raise ValueError(
                f"Tensors: columns have lengths {[len(column) for column in columns]}; "
                "give one or more of equal length"
            )
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def to(self, device: torch.device, dtype: torch.dtype) -> "Tensors":
        return Tensors(
            *(
                column.to(device, dtype if column.is_floating_point() else None)
                for column in self.columns
            )
        )

    def batch(self, at_B: Tensor) -> Batch:
        return tuple(column[at_B] for column in self.columns)


@dataclass(frozen=True)
class Data:
    """What to learn from, and what to judge by."""

    train: Source
    validation: Source


@dataclass(frozen=True)
class Task(ABC):
    """Model, data, losses and evaluation; fields are hyperparameters, a step is an epoch.

    Methods are verbs, so that `model`, `loss` or `optimizer` stay free as names of fields.

    The runtime seeds, shards, synchronizes, scales, clips, saves and restores. It reports
    `train/loss` and each value of `evaluate` as `val/NAME`.
    """

    lr: float = 1e-3
    batch: int = 64  # samples an update over all ranks, whatever their number

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; give 1 sample or more")

    @abstractmethod
    def build_model(self) -> nn.Module:
        """A fresh model; equal seeds give equal weights on every rank."""

    @abstractmethod
    def load_data(self) -> Data:
        """The same samples in the same order on every rank; the runtime deals them out."""

    @abstractmethod
    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """The losses of a batch, one an element that counts (sample, token): no mean, any shape.

        Args:
            model: call it, but do not reach into it: under DDP it is wrapped.
        """

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Name to values of the samples, not averaged; means are reported as `val/NAME`."""
        return {"loss": self.compute_losses(model, batch)}

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """What updates the model; its learning rates are those of progress 0."""
        return torch.optim.AdamW(model.parameters(), lr=self.lr)

    def scale_lr(self, progress: float) -> float:
        """The factor on each learning rate, at a share in [0, 1) of the whole trial."""
        return 1.0

    def train(self, worker: Worker) -> None:
        """Carry out an order on this rank."""
        from trainables.loop import fit

        fit(self, worker)
