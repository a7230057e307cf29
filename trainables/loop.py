"""Train a Task on this rank for one order: epochs, evaluation, checkpoints, reports.

An update's gradient is that of the mean loss over all elements of the global batch, exactly:
each rank adds up its own losses, and one reduction divides by the global count. So neither the
number of ranks nor `accumulate` changes what is learned.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainables import precision as formats
from trainables.data import Data
from trainables.parallel.strategies import Strategy, choose, share
from trainables.randomness import derive, permutation, preserved, seed_all
from trainables.state import load_training_state, save_training_state
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task


def fit(task: "Task", worker: Worker) -> None:
    """Carry out an order; StopTrial passes through."""
    with preserved():
        session = start(task, worker)
        for step in worker.steps():
            seed_all(derive(worker.seed, "step", step, worker.rank))
            tallies = {"train/loss": session.train_epoch(step), **session.evaluate()}
            session.report(step, tallies)


def start(task: "Task", worker: Worker) -> "Session":
    """Build what the order trains, or restore it from the order's checkpoint."""
    stored = formats.stored(worker.training.precision)
    device = worker.device
    seed_all(derive(worker.seed, "model"))
    data = task.load_data()
    model = task.build_model().to(device, stored)
    optimizer = task.build_optimizer(model)
    scaler = formats.scaler(worker.training.precision, device)
    if (folder := worker.restore()) is not None:
        load_training_state(folder, model, optimizer, scaler)
    strategy = choose(worker)
    return Session(
        task=task,
        worker=worker,
        strategy=strategy,
        data=Data(data.train.to(device, stored), data.validation.to(device, stored)),
        bare=model,
        model=strategy.wrap(model),
        optimizer=optimizer,
        scaler=scaler,
        rates=tuple(group["lr"] for group in optimizer.param_groups),
    )


@dataclass(frozen=True)
class Session:
    """One order's training on this rank. A tally is [sum, count] of values, shape (2,)."""

    task: "Task"
    worker: Worker
    strategy: Strategy
    data: Data
    bare: nn.Module  # the model as the task made it
    model: nn.Module  # the same, as the strategy trains it
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    rates: tuple[float, ...]  # the order's learning rate of each parameter group

    def train_epoch(self, step: int) -> Tensor:
        """See every training sample once; returns this rank's tally of losses."""
        self.model.train()
        order = permutation(derive(self.worker.seed, "order", step), len(self.data.train))
        batches = order.to(self.worker.device).split(self.task.batch)
        tally = self._zeros()
        for index, at_B in enumerate(batches):
            self._set_rates((step - 1 + index / len(batches)) / self.worker.total)
            tally += self._update(at_B)
        return tally

    def evaluate(self) -> dict[str, Tensor]:
        """This rank's tallies over its share of the validation samples, by metric."""
        self.model.eval()
        self.strategy.share_buffers(self.bare)
        at = torch.arange(len(self.data.validation), device=self.worker.device)
        own, weight = share(at, self.worker)
        tallies: dict[str, Tensor] = {}
        for at_B in own.split(self.task.batch):
            batch = self.data.validation.batch(at_B)
            with torch.no_grad(), self._autocast():
                values = self.task.evaluate(self.bare, batch)
            for name, value in values.items():
                tally = tallies.setdefault(f"val/{name}", self._zeros())
                tally += weight * _tally(value)
        return tallies

    def report(self, step: int, tallies: Mapping[str, Tensor]) -> None:
        """Add up tallies over ranks, save if due, and report the means."""
        sums = self.strategy.sum(torch.stack(list(tallies.values()))).tolist()
        metrics = {
            name: total / count if count else math.nan
            for name, (total, count) in zip(tallies, sums, strict=True)
        }
        self.worker.report(step, metrics, self._save(step))

    def _update(self, at_B: Tensor) -> Tensor:
        """One step of the optimizer on a global batch; returns this rank's tally of losses."""
        own, weight = share(at_B, self.worker)
        parts = [part for part in own.tensor_split(self.worker.training.accumulate) if len(part)]
        # Averaged over ranks, this gives sums over len(at_B), nearly the mean: fit for float16.
        scale = weight * self.worker.world_size / len(at_B)
        self.optimizer.zero_grad()
        tally = self._zeros()
        for part in parts[:-1]:
            with self.strategy.local(self.model):
                tally += self._backward(part, scale)
        tally += self._backward(parts[-1], scale)
        tally *= weight
        count = self.strategy.sum(tally[1].clone())
        self._step(len(at_B) / count.clamp(min=1))
        return tally

    def _backward(self, at_B: Tensor, scale: float) -> Tensor:
        with self._autocast():
            losses = self.task.compute_losses(self.model, self.data.train.batch(at_B))
        self.scaler.scale(losses.sum() * scale).backward()
        return _tally(losses.detach())

    def _step(self, ratio: Tensor) -> None:
        """Update the weights with the gradients times `ratio`, which makes them exact means."""
        self.scaler.unscale_(self.optimizer)
        gradients = [each.grad for each in self.bare.parameters() if each.grad is not None]
        torch._foreach_mul_(gradients, ratio.to(gradients[0].dtype))
        if self.worker.training.clip is not None:
            nn.utils.clip_grad_norm_(self.bare.parameters(), self.worker.training.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _set_rates(self, progress: float) -> None:
        factor = self.task.scale_lr(progress)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor

    def _save(self, step: int) -> Path | None:
        if self.worker.rank != 0 or not self.worker.due(step):
            return None
        return save_training_state(self.worker.scratch(), self.bare, self.optimizer, self.scaler)

    def _autocast(self) -> torch.autocast:
        return formats.autocast(self.worker.training.precision, self.worker.device)

    def _zeros(self) -> Tensor:
        return torch.zeros(2, dtype=torch.float64, device=self.worker.device)


def _tally(values: Tensor) -> Tensor:
    total = values.sum(dtype=torch.float64)
    return torch.stack([total, torch.full_like(total, values.numel())])
