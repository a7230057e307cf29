"""The training loop of an order on one rank: epochs, evaluation, checkpoints, reports."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import torch
from torch import Tensor

from trainables.checkpoints.saver import Saver
from trainables.monitoring.train_monitor import TrainMonitor
from trainables.optim.schedules import factor
from trainables.optim.unfreezing import BEGINS
from trainables.parallel.strategies import Strategy, largest_share, split_batch
from trainables.randomness import derive, permutation, seed_all
from trainables.stop_signals import SIGTERM_TEXT, Preempted
from trainables.trainer.forward_backward import ForwardBackward
from trainables.trainer.measuring import add_costs
from trainables.trainer.optimizer_step import OptimizerStep
from trainables.trainer.preemption_sync import PreemptionSync
from trainables.training_state.divergence import SLOWER, Rollback
from trainables.training_state.loop_state import TrainingState
from trainables.training_state.tallies import empty
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass
class Trainer:
    """The training of one order on this rank. A tally is [sum, count] of values, shape (2,)."""

    task: "Task"
    worker: Worker
    strategy: Strategy
    passes: ForwardBackward
    update: OptimizerStep
    state: TrainingState
    saver: Saver
    monitor: TrainMonitor
    rates: tuple[float, ...]  # the order's learning rate of each parameter group
    costs: Mapping[str, float]  # the task's measurements before training; on rank 0 only
    # Samples of the step in updates that a checkpoint holds, whose time is not this order's.
    skipped: int = field(default=0, init=False)
    preemption_sync: PreemptionSync = field(init=False)  # lets all ranks stop at the same update

    def __post_init__(self) -> None:
        self.preemption_sync = PreemptionSync(self.worker)

    def run(self) -> None:
        """Train the order's steps, and train again the steps that a rollback undoes."""
        with self.saver, closing(self.passes.data):
            self._run_steps()

    def _run_steps(self) -> None:
        step, updates_done = self.worker.first, self.worker.within
        while step in self.worker.steps():
            try:
                tallies = {"train/loss": self.train_epoch(step, updates_done), **self.evaluate()}
            except Rollback:
                step, updates_done = self.saver.rollback(self.state)
                self.state.loop_state.lr_backoff *= SLOWER
                continue
            if step >= self.worker.next_step:
                self.print_samples(step)
                self.report(step, tallies)
            step, updates_done = step + 1, 0

    def train_epoch(self, step: int, within: int = 0) -> Tensor:
        """Train on every sample once (see Data.drop_last); return this rank's tally of losses.

        Args:
            within: updates of this step that a checkpoint holds already.
        """
        self.passes.model.train()
        loop_state = self.state.loop_state
        if within == 0:
            seed_all(derive(self.worker.seed, "step", step, self.strategy.dp_rank))
            loop_state.losses = empty(self.worker.device)
        else:
            self.saver.resume(step, within, self.state)
        train, parts = self.passes.data.train, 0
        order = permutation(derive(self.worker.seed, "order", step), len(train))
        batches = self.passes.data.batches(order.to(train.home), self.task.batch)
        self.skipped = sum(map(len, batches[:within]))
        for index in range(within, len(batches)):
            if parts != self.update.micro_batching.count:  # at first, and after memory ran out
                parts = self.update.micro_batching.count
                self._plan_batches(step, batches[index:])
            self.set_rates((step - 1 + index / len(batches)) / self.worker.length)
            with self.monitor.update():
                loop_state.losses += self.update.run(batches[index])
            self.saver.save_mid_epoch(step, index + 1, len(batches), self.state)
            if index + 1 < len(batches) and self.preemption_sync.should_stop():
                self.leave(step, index + 1)
        self.strategy.sync_replicas(self.state)
        self.monitor.end_epoch(train.wait_seconds())
        return loop_state.losses

    def leave(self, step: int, updates: int) -> NoReturn:
        """Save the state after this many updates of a step, and end the order."""
        self.saver.keep_mid_epoch(step, updates, self.state)
        raise Preempted(
            f"a rank {SIGTERM_TEXT} after {updates} updates of step {step}, which are kept"
        )

    def evaluate(self) -> dict[str, Tensor]:
        """Return this rank's tallies over its share of the validation samples, by metric."""
        self.strategy.share_buffers(self.passes.unwrapped_model)
        with self._with_averaged_weights():
            self.passes.model.eval()
            if self.state.average is not None:  # each rank has averaged its own buffers
                self.strategy.share_buffers(self.passes.unwrapped_model)
            validation = self.passes.data.validation
            positions = torch.arange(len(validation), device=validation.home)
            # As many samples at a time as this rank gets of a training batch.
            part = largest_share(self.task.batch, self.strategy)
            count = -(-largest_share(len(validation), self.strategy) // part)
            # If training needs micro-batches to fit into memory, evaluation gets smaller parts too.
            count *= 1 if self.strategy.splits_batches else self.update.micro_batching.count
            parts = split_batch(positions, self.strategy, count)
            split = self.update.micro_batching.count if self.strategy.splits_batches else 1
            pieces = (piece for part in parts for piece in part.tensor_split(split))
            seed = derive(self.worker.seed, "samples", "validation")
            validation.plan(filter(len, pieces), seed)
            tallies = self.strategy.evaluate(self.passes, parts)
        return {f"val/{name}": tally for name, tally in tallies.items()}

    def print_samples(self, step: int) -> None:
        """Print the task's text on the evaluated model, if the model will be saved."""
        if not self.worker.due(step):
            return
        with self._with_averaged_weights():
            text = self.strategy.show(self.passes)
        if text and self.worker.rank == 0:
            print(f"step {step}: {text}", flush=True)  # noqa: T201 - goes to the order's log

    def report(self, step: int, tallies: Mapping[str, Tensor]) -> None:
        """Sum the tallies over ranks, save if due, and report the means."""
        update = self.update
        sums = self.strategy.all_reduce_sum(torch.stack(list(tallies.values()))).tolist()
        metrics = {
            name: total / count if count else math.nan
            for name, (total, count) in zip(tallies, sums, strict=True)
        }
        metrics |= self.task.summarize(metrics)
        metrics = add_costs(metrics, self.costs, self.task)
        if self.state.plateau is not None:
            self.state.plateau.observe(metrics.get("val/loss", metrics["train/loss"]))
        metrics |= update.metrics()
        samples = self.passes.data.trained_samples(self.task.batch)
        share = 1.0 - self.skipped / samples
        metrics |= self.monitor.collect(samples - self.skipped, sums[0][1] * share)
        metrics["train/lr"] = self.state.optimizer.param_groups[0]["lr"]
        try:
            self.worker.report(step, metrics, self.saver.save(step, self.state))
        except Preempted:
            self.saver.keep_step(step, self.state)
            raise
        self.saver.save_async(step, self.state)

    def _with_averaged_weights(self) -> AbstractContextManager[None]:
        """Return a context in which the model has its averaged weights, if there are any."""
        return nullcontext() if self.state.average is None else self.state.average.applied()

    def _plan_batches(self, step: int, batches: Sequence[Tensor]) -> None:
        """Tell the data source which micro-batches of these batches this rank will ask for."""
        parts = self.update.micro_batching.count
        pieces = (piece for at_B in batches for piece in split_batch(at_B, self.strategy, parts))
        seed = derive(self.worker.seed, "samples", step)
        self.passes.data.train.plan(filter(len, pieces), seed)

    def set_rates(self, progress: float) -> None:
        """Set the learning rate of each parameter group, at this share of the complete trial."""
        training, state = self.worker.training, self.state
        factor_now = state.loop_state.lr_backoff
        if training.schedule == "task":
            factor_now *= self.task.scale_lr(progress)
        elif training.schedule == "plateau":
            factor_now *= factor("constant", progress, training.warmup)
        else:
            factor_now *= factor(training.schedule, progress, training.warmup)
        if state.plateau is not None:
            factor_now *= state.plateau.factor
        for group, base_rate in zip(state.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = base_rate * factor_now if progress >= group.get(BEGINS, 0.0) else 0.0
