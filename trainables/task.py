"""Task: a PyTorch trainable that says what to learn; the runtime (loop.py) does the rest."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainables.data import Batch, Data
from trainables.fitting.fit import fit
from trainables.parallel.plan import How, pairs
from trainables.worker import Worker


@dataclass(frozen=True)
class Task(ABC):
    """Model, data, losses and evaluation; fields are hyperparameters, a step is an epoch.

    Methods are verbs, so that `model`, `loss` or `optimizer` stay free as names of fields.

    The runtime seeds, shards, synchronizes, scales, clips, saves and restores. It reports
    `train/loss`, each value of `evaluate` as `val/NAME`, and what `measure` gives.
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

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """More metrics that follow from a report's means, as perplexity from the mean loss."""
        return {}

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        """What a model costs besides its losses: name to number; trainables.costs counts some.

        The values stand in each report under their own names, so `metrics` and `limits` can name
        them at every step. They are measured on rank 0 before an order trains, and anew when a
        trial is resumed: a latency may then be another. The model is in eval mode, without
        gradients, uncompiled, in the training's precision; random numbers drawn here change
        nothing.

        Args:
            model: the whole one that is trained, not wrapped. Where ranks share it (fsdp, tensor,
                pipeline, deepspeed), one that `build_model` makes anew in rank 0's main memory,
                with first weights: its time is a CPU's.
            sample: two evaluation samples (or one, if there is no more), where the model is.
        """
        return {}

    def show(self, model: nn.Module) -> str:
        """What people see of the model in its log, at steps that are saved; empty: nothing.

        All ranks call it, in eval mode and without gradients; those of a pipeline do not.
        """
        return ""

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """What updates the model; its learning rates are those of progress 0."""
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        return torch.optim.AdamW(learning, lr=self.lr)

    def plan_tensor(self, model: nn.Module) -> Mapping[str, How]:
        """Which linear layers a tensor group's ranks split, by their names in the model.

        By default those that follow one another in an nn.Sequential, through elementwise modules.
        Of attention name query, key and value "colwise" (each rank then has its share of the
        heads), and the output layer "rowwise".
        """
        return pairs(model)

    def scale_lr(self, progress: float) -> float:
        """The factor on each learning rate, at a share in [0, 1) of the whole trial."""
        return 1.0

    def train(self, worker: Worker) -> None:
        """Carry out an order on this rank."""
        fit(self, worker)
