"""The steps of an order on one rank: epochs, evaluation, checkpoints, reports."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainables.checkpoints.saver import Saver
from trainables.fitting.divergence import SLOWER, RollBack
from trainables.fitting.passes import Passes
from trainables.fitting.state import TrainingState
from trainables.fitting.tallies import empty
from trainables.fitting.update import Update
from trainables.optim.schedules import factor
from trainables.parallel.strategies import Strategy, deal, most
from trainables.randomness import derive, permutation, seed_all
from trainables.watching.gauges import Gauges
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass
class Session:
    """One order's training on this rank. A tally is [sum, count] of values, shape (2,)."""

    task: "Task"
    worker: Worker
    strategy: Strategy
    passes: Passes
    update: Update
    state: TrainingState
    saver: Saver
    gauges: Gauges
    rates: tuple[float, ...]  # the order's learning rate of each parameter group

    def run(self) -> None:
        """Train the order's steps, those again that a way back undoes."""
        with self.saver:
            self._run()

    def _run(self) -> None:
        step, within = self.worker.first, self.worker.within
        while step <= self.worker.until:
            try:
                tallies = {"train/loss": self.train_epoch(step, within), **self.evaluate()}
            except RollBack:
                step, within = self.saver.go_back(self.state)
                self.state.marks.slower *= SLOWER
                continue
            if step >= self.worker.next_step:
                self.report(step, tallies)
            step, within = step + 1, 0

    def train_epoch(self, step: int, within: int = 0) -> Tensor:
        """See every training sample once; returns this place's tally of losses.

        Args:
            within: updates of this step that a checkpoint holds already.
        """
        self.passes.model.train()
        marks = self.state.marks
        if within == 0:
            seed_all(derive(self.worker.seed, "step", step, self.strategy.place))
            marks.losses = empty(self.worker.device)
        else:
            self.saver.resume(step, within, self.state)
        order = permutation(derive(self.worker.seed, "order", step), len(self.passes.data.train))
        batches = order.to(self.worker.device).split(self.task.batch)
        for index in range(within, len(batches)):
            self._set_rates((step - 1 + index / len(batches)) / self.worker.total)
            with self.gauges.update():
                marks.losses += self.update.run(batches[index])
            self.saver.save_within(step, index + 1, len(batches), self.state)
        self.strategy.agree(self.state)
        self.gauges.rest()
        return marks.losses

    def evaluate(self) -> dict[str, Tensor]:
        """This place's tallies over its share of the validation samples, by metric."""
        average = self.state.average
        with nullcontext() if average is None else average.applied():
            self.passes.model.eval()
            self.strategy.share_buffers(self.passes.bare)
            at = torch.arange(len(self.passes.data.validation), device=self.worker.device)
            number = -(-most(at, self.strategy) // self.task.batch)
            number *= 1 if self.strategy.splits else self.update.split.parts  # as memory has room
            parts = deal(at, self.strategy, number)
            found = self.strategy.evaluate(self.passes, parts)
        return {f"val/{name}": tally for name, tally in found.items()}

    def report(self, step: int, tallies: Mapping[str, Tensor]) -> None:
        """Add up tallies over places, save if due, and report the means."""
        update = self.update
        sums = self.strategy.sum(torch.stack(list(tallies.values()))).tolist()
        metrics = {
            name: total / count if count else math.nan
            for name, (total, count) in zip(tallies, sums, strict=True)
        }
        if self.state.plateau is not None:
            self.state.plateau.observe(metrics.get("val/loss", metrics["train/loss"]))
        metrics |= update.metrics()
        metrics |= self.gauges.take(len(self.passes.data.train), sums[0][1])
        metrics["train/lr"] = self.state.optimizer.param_groups[0]["lr"]
        self.worker.report(step, metrics, self.saver.save(step, self.state))
        self.saver.save_behind(step, self.state)

    def _set_rates(self, progress: float) -> None:
        training, state = self.worker.training, self.state
        rate = state.marks.slower
        if training.schedule == "task":
            rate *= self.task.scale_lr(progress)
        elif training.schedule == "plateau":
            rate *= factor("constant", progress, training.warmup)
        else:
            rate *= factor(training.schedule, progress, training.warmup)
        if state.plateau is not None:
            rate *= state.plateau.factor
        for group, own in zip(state.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = own * rate
