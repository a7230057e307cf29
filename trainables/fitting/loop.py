"""The steps of an order on one rank: epochs, evaluation, checkpoints, reports."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from trainables.checkpoints.saver import Saver
from trainables.fitting.divergence import SLOWER, RollBack
from trainables.fitting.leaving import Agreement
from trainables.fitting.measuring import joined
from trainables.fitting.passes import Passes
from trainables.fitting.state import TrainingState
from trainables.fitting.tallies import empty
from trainables.fitting.update import Update
from trainables.optim.schedules import factor
from trainables.optim.unfreezing import BEGINS
from trainables.parallel.strategies import Strategy, deal, most
from trainables.randomness import derive, permutation, seed_all
from trainables.slots.preemption import TOLD
from trainables.stopping import Preempted
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
    costs: Mapping[str, float]  # what the task measured before; rank 0's
    leaving: Agreement = field(init=False)  # of all ranks, once one was told to end

    def __post_init__(self) -> None:
        self.leaving = Agreement(self.worker)

    def run(self) -> None:
        """Train the order's steps, those again that a way back undoes."""
        with self.saver, closing(self.passes.data):
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
                self.show(step)
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
        train, parts = self.passes.data.train, 0
        order = permutation(derive(self.worker.seed, "order", step), len(train))
        batches = order.to(train.home).split(self.task.batch)
        for index in range(within, len(batches)):
            if parts != self.update.split.parts:  # at first, and once memory has run out
                parts = self.update.split.parts
                self._plan(step, batches[index:])
            self.set_rates((step - 1 + index / len(batches)) / self.worker.total)
            with self.gauges.update():
                marks.losses += self.update.run(batches[index])
            self.saver.save_within(step, index + 1, len(batches), self.state)
            if index + 1 < len(batches) and self.leaving.reached():
                self.leave(step, index + 1)
        self.strategy.agree(self.state)
        self.gauges.rest(train.waited())
        return marks.losses

    def leave(self, step: int, updates: int) -> NoReturn:
        """Keep what there is after so many updates of a step, and end the order."""
        self.saver.keep_within(step, updates, self.state)
        raise Preempted(f"a rank {TOLD} after {updates} updates of step {step}, which are kept")

    def evaluate(self) -> dict[str, Tensor]:
        """This place's tallies over its share of the validation samples, by metric."""
        with self._averaged():
            self.passes.model.eval()
            self.strategy.share_buffers(self.passes.bare)
            validation = self.passes.data.validation
            at = torch.arange(len(validation), device=validation.home)
            number = -(-most(at, self.strategy) // self.task.batch)
            number *= 1 if self.strategy.splits else self.update.split.parts  # as memory has room
            parts = deal(at, self.strategy, number)
            split = self.update.split.parts if self.strategy.splits else 1
            pieces = (piece for part in parts for piece in part.tensor_split(split))
            seed = derive(self.worker.seed, "samples", "validation")
            validation.plan(filter(len, pieces), seed)
            found = self.strategy.evaluate(self.passes, parts)
        return {f"val/{name}": tally for name, tally in found.items()}

    def show(self, step: int) -> None:
        """Print what the task shows of the model that was evaluated, if it will be saved."""
        if not self.worker.due(step):
            return
        with self._averaged():
            text = self.strategy.show(self.passes)
        if text and self.worker.rank == 0:
            print(f"step {step}: {text}", flush=True)  # noqa: T201 - the order's log is where it goes

    def report(self, step: int, tallies: Mapping[str, Tensor]) -> None:
        """Add up tallies over places, save if due, and report the means."""
        update = self.update
        sums = self.strategy.sum(torch.stack(list(tallies.values()))).tolist()
        metrics = {
            name: total / count if count else math.nan
            for name, (total, count) in zip(tallies, sums, strict=True)
        }
        metrics |= self.task.summarize(metrics)
        metrics = joined(metrics, self.costs, self.task)
        if self.state.plateau is not None:
            self.state.plateau.observe(metrics.get("val/loss", metrics["train/loss"]))
        metrics |= update.metrics()
        metrics |= self.gauges.take(len(self.passes.data.train), sums[0][1])
        metrics["train/lr"] = self.state.optimizer.param_groups[0]["lr"]
        try:
            self.worker.report(step, metrics, self.saver.save(step, self.state))
        except Preempted:
            self.saver.keep_step(step, self.state)
            raise
        self.saver.save_behind(step, self.state)

    def _averaged(self) -> AbstractContextManager[None]:
        """Within it, the model has the averaged weights, where there are any."""
        return nullcontext() if self.state.average is None else self.state.average.applied()

    def _plan(self, step: int, batches: Sequence[Tensor]) -> None:
        """Tell the source which micro-batches of these batches this place will ask for."""
        parts = self.update.split.parts
        pieces = (piece for at_B in batches for piece in deal(at_B, self.strategy, parts))
        seed = derive(self.worker.seed, "samples", step)
        self.passes.data.train.plan(filter(len, pieces), seed)

    def set_rates(self, progress: float) -> None:
        """Give each parameter group its learning rate at this share of the whole trial."""
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
            group["lr"] = own * rate if progress >= group.get(BEGINS, 0.0) else 0.0
