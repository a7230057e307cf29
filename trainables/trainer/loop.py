"""The training loop of an order on one rank: updates, evaluation, checkpoints, reports."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor

from trainables.checkpoints.saver import Saver
from trainables.length import Length
from trainables.monitoring.train_monitor import TrainMonitor
from trainables.optim.evaluation_mode import evaluation_weights
from trainables.optim.schedules import factor
from trainables.optim.unfreezing import BEGINS
from trainables.parallel.rank_poll import RankPoll
from trainables.parallel.strategy import Strategy, largest_share, split_batch
from trainables.randomness import derive, permutation, preserved, seed_all
from trainables.stop_signals import SIGTERM_TEXT, Preempted
from trainables.task import Task
from trainables.trainer.forward_backward import ForwardBackward
from trainables.trainer.measuring import add_costs
from trainables.trainer.optimizer_step import OptimizerStep, in_pass
from trainables.training_state.divergence import SLOWER, Rollback
from trainables.training_state.loop_state import TrainingState
from trainables.training_state.tallies import empty
from trainables.worker import Worker

ASKING_S = 2.0  # between two exchanges of preemption notices: clouds give 30 seconds and more


@dataclass
class Trainer:
    """The training of one order on this rank. A tally is [sum, count] of values, shape (2,)."""

    task: Task
    worker: Worker
    strategy: Strategy
    passes: ForwardBackward
    update: OptimizerStep
    state: TrainingState
    saver: Saver
    monitor: TrainMonitor
    rates: tuple[float, ...]  # the order's learning rate of each parameter group
    costs: Mapping[str, float]  # the task's measurements before training; on rank 0 only
    length: Length = field(init=False)
    # Samples since the last report, and those of them in updates that a checkpoint held, whose
    # time is not this order's.
    samples: int = field(default=0, init=False)
    skipped: int = field(default=0, init=False)
    preemption: RankPoll = field(init=False)  # lets all ranks stop at the same update
    updates: int = field(default=0, init=False)  # since the trial began
    # The updates before the last evaluation, and what it found: reports within one update share it.
    evaluated: tuple[int, dict[str, Tensor]] = field(default=(-1, {}), init=False)
    restored: bool = field(default=True, init=False)  # whether the next update follows a restart
    # The batches of an epoch, and its number from 1; the epoch and micro-batches that are planned.
    batches: Sequence[Tensor] = field(default=(), init=False)
    epoch: int = field(default=0, init=False)
    planned: tuple[int, int] = field(default=(0, 0), init=False)

    def __post_init__(self) -> None:
        worker, batch = self.worker, self.task.batch
        self.preemption = RankPoll(worker, ASKING_S)
        steps = self._last_step()
        self.length = Length(worker.unit, steps, batch, *self.passes.data.epoch(batch))

    def _last_step(self) -> int:
        """Return the trial's last step: that of the order, or as many tokens as the model needs."""
        worker = self.worker
        ratio = worker.training.tokens_per_weight
        if ratio is None:
            return worker.length
        if worker.unit != "token":
            raise ValueError(
                f"training.tokens_per_weight is {ratio:g}, and fidelity.unit is {worker.unit}; "
                "measure in token, or leave it out"
            )
        last = max(1, min(worker.length, round(ratio * self.state.weights)))
        worker.milestones = (*worker.milestones, last)  # so that there is a checkpoint of its end
        return last

    def run(self) -> None:
        """Train the order's steps, and train again the steps that a rollback undoes."""
        with self.saver, closing(self.passes.data):
            self._run_steps()

    def _run_steps(self) -> None:
        step, within = self.worker.first - 1, self.worker.within
        end = min(self.worker.steps()[-1], self.length.steps)
        while step < end:
            last = min(self.worker.next_report(step), end)
            try:
                tallies = self.train_steps(step + 1, last, within)
                # Within an epoch, evaluation draws no numbers from training's generators.
                with preserved() if self.state.loop_state.amid else nullcontext():
                    if self.evaluated[0] != self.updates:
                        self.evaluated = self.updates, self.evaluate()
                    tallies |= self.evaluated[1]
                    if last >= self.worker.next_step:
                        self.print_samples(last)
            except Rollback:
                step, within = self.saver.rollback(self.state)
                self.state.loop_state.lr_backoff *= SLOWER
                self.restored, self.planned, self.evaluated = True, (0, 0), (-1, {})
                continue
            if last >= self.worker.next_step:
                self.report(last, tallies)
            step, within = last, 0

    def train_steps(self, first: int, last: int, within: int = 0) -> dict[str, Tensor]:
        """Train the steps `first` to `last`; return this rank's tallies of losses by metric.

        Args:
            within: updates beyond step `first` - 1 that a checkpoint holds already.
        """
        self.passes.model.train()
        length, loop_state, train = self.length, self.state.loop_state, self.passes.data.train
        done = self._updates_until(first - 1, within)
        begun = done - within
        loop_state.amid = self._is_amid(done)
        if self.restored and (loop_state.amid or within):
            self.saver.resume(done, self.state)
        self.restored = False
        over = self._reached(last, done)
        if not over and within == 0:
            loop_state.losses = empty(self.worker.device).repeat(len(self.update.turns), 1)
        sums = loop_state.losses.unbind()
        while not over:
            epoch, index = divmod(done, length.epoch_updates)
            if index == 0:
                place = self.strategy.dp_rank
                seed_all(derive(self.worker.seed, "epoch", epoch + 1, place))
            if train.is_stream:
                at_B = torch.arange(done * length.batch, (done + 1) * length.batch)
            else:
                at_B = self._batch(epoch + 1, index)
            self.set_rates(length.progress(done, loop_state.tokens))
            with self.monitor.update():
                tallies = self.update.run(at_B)
            for total, tally in zip(sums, tallies, strict=True):
                total += tally
            done += 1
            loop_state.amid = self._is_amid(done)
            if length.counts_tokens:
                loop_state.samples += len(at_B)
                loop_state.tokens += self.update.count_elements()
            over = self._reached(last, done)
            self.saver.save_within(first - 1, done - begun, self.state, over)
            if not over and self.preemption.holds(self.worker.notice.given):
                self.leave(first - 1, done - begun)
            if self.worker.sharing is not None:
                self.update.drop_gradients()
                self.worker.sharing.pass_turn()
        self.updates = done
        self.strategy.sync_replicas(self.state)
        self.monitor.end_epoch(train.wait_seconds())
        self.samples = length.samples(done) - length.samples(begun)
        self.skipped = length.samples(begun + within) - length.samples(begun)
        return self.update.named(loop_state.losses)

    def _updates_until(self, step: int, within: int) -> int:
        """Return the updates since the trial began, up to so many beyond a step."""
        if self.length.counts_tokens:
            return self.length.updates_of(self.state.loop_state.samples)
        return self.length.updates(step) + within

    def _is_amid(self, updates: int) -> bool:
        """Return whether what follows depends on more than the number of the next epoch."""
        length, train = self.length, self.passes.data.train
        return length.is_counted or train.is_stream or updates % length.epoch_updates > 0

    def _reached(self, step: int, updates: int) -> bool:
        """Return whether a step is complete after so many updates."""
        if self.length.counts_tokens:
            return self.state.loop_state.tokens >= step
        return updates >= self.length.updates(step)

    def _batch(self, epoch: int, index: int) -> Tensor:
        """Return the positions of an update's samples, and have those that follow loaded ahead."""
        train, parts = self.passes.data.train, self.update.micro_batching.count
        if epoch != self.epoch:
            order = permutation(derive(self.worker.seed, "order", epoch), len(train))
            self.batches = self.passes.data.batches(order.to(train.index_device), self.task.batch)
            self.epoch = epoch
        if self.planned != (epoch, parts):  # at first, and after memory ran out
            self.planned = epoch, parts
            batches = self.batches[index:]
            passes = (at_B for at_B in batches for _ in self.update.turns)
            pieces = (part for at_B in passes for part in split_batch(at_B, self.strategy, parts))
            train.plan(filter(len, pieces), derive(self.worker.seed, "samples", epoch))
        return self.batches[index]

    def leave(self, step: int, updates: int) -> NoReturn:
        """Save the state after so many updates beyond a step, and end the order."""
        self.saver.keep_within(step, updates, self.state)
        raise Preempted(
            f"a rank {SIGTERM_TEXT} after {updates} updates beyond step {step}, which are kept"
        )

    def evaluate(self) -> dict[str, Tensor]:
        """Return this rank's tallies over its share of the validation samples, by metric."""
        self.strategy.share_buffers(self.passes.unwrapped_model)
        with self._with_averaged_weights():
            self.passes.model.eval()
            if self.state.average is not None:  # each rank has averaged its own buffers
                self.strategy.share_buffers(self.passes.unwrapped_model)
            validation = self.passes.data.validation
            positions = torch.arange(len(validation), device=validation.index_device)
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
            with in_pass(self.worker):
                tallies = self.passes.evaluate(parts)
        return {f"val/{name}": tally for name, tally in tallies.items()}

    def print_samples(self, step: int) -> None:
        """Print the task's text on the evaluated model, if the model will be saved."""
        if not self.worker.due(step):
            return
        with self._with_averaged_weights():
            text = self.passes.show()
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
        own = self.samples - self.skipped
        metrics |= self.monitor.collect(own, sums[0][1] * own / max(self.samples, 1))
        metrics["train/lr"] = self.state.optimizer.param_groups[0]["lr"]
        if self.length.counts_tokens:
            metrics["train/tokens"] = self.state.loop_state.tokens
        try:
            self.worker.report(step, metrics, self.saver.save(step, self.state))
        except Preempted:
            self.saver.keep_step(step, self.state)
            raise
        self.saver.save_async(step, self.state)

    def _with_averaged_weights(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the weights to evaluate."""
        if self.state.average is not None:
            return self.state.average.applied()
        return evaluation_weights(self.state.optimizer, self.state.model)

    def set_rates(self, progress: float) -> None:
        """Set the learning rate of each parameter group, at this share of the complete trial."""
        training, state = self.worker.training, self.state
        factor_now = state.loop_state.lr_backoff
        if training.schedule == "task":
            factor_now *= self.task.scale_lr(progress)
        else:
            name = "constant" if training.schedule == "plateau" else training.schedule
            factor_now *= factor(name, progress, training.warmup)
        if state.plateau is not None:
            factor_now *= state.plateau.factor
        for group, base_rate in zip(state.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = base_rate * factor_now if progress >= group.get(BEGINS, 0.0) else 0.0
