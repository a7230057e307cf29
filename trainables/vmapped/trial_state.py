"""The state of a trial in a batch: its trainer, as if running alone, and its step in the order."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass

import torch
from torch import Tensor

from trainables.data import Data, Tensors
from trainables.randomness import derive, permutation
from trainables.storage.checkpoint import Period
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.trainer.loop import Trainer
from trainables.vmapped.optimizers import Optimizer
from trainables.vmapped.refusals import Unbatchable
from trainables.vmapped.shares import SharedTrainMonitor
from trainables.worker import Worker

WHOLE_EPOCHS = ("epoch", "step")


@dataclass(eq=False)
class VmappedTrial:
    """A trial that trains at once with others."""

    trainer: Trainer
    closing: ExitStack  # closed when the trial leaves
    generator: torch.Generator  # for dropout
    step: int  # the next step, or the step under way
    monitor: SharedTrainMonitor  # the trainer's monitor
    updates: int = 0  # number of the optimizer's updates so far

    @classmethod
    def begin(cls, task: Task, worker: Worker) -> "VmappedTrial":
        """Prepare a trial for its order; finish alone a step that its checkpoint interrupted.

        Raises:
            StopTrial: that step's report was the last.
        """
        with ExitStack() as stack:
            trainer = stack.enter_context(prepare(task, worker))
            if worker.unit not in WHOLE_EPOCHS:
                raise Unbatchable(
                    f"its steps are of the unit {worker.unit}; those of trials that train at once "
                    "are epochs"
                )
            stack.enter_context(trainer.saver)
            stack.enter_context(closing(trainer.passes.data))
            step = worker.first
            if worker.within:
                tallies = trainer.train_steps(step, step, worker.within)
                if step >= worker.next_step:
                    trainer.report(step, {**tallies, **trainer.evaluate()})
                step += 1
            generator = torch.Generator(worker.device)
            trainer.monitor = monitor = SharedTrainMonitor(worker)
            return cls(trainer, stack.pop_all(), generator, step, monitor)

    @property
    def worker(self) -> Worker:
        return self.trainer.worker

    @property
    def is_over(self) -> bool:
        """Whether the order has no step left."""
        return self.step not in self.worker.steps()

    @property
    def saves(self) -> bool:
        """Whether a checkpoint may be due at the end of this step."""
        return self.worker.due(self.step) or isinstance(self.worker.every, Period)

    def use_tensors_of(self, data: Data) -> None:
        """Use the tensors of equal samples, so that the device holds the samples only once.

        Raises:
            TypeError: the samples are no Tensors.
        """
        own_data = self.trainer.passes.data
        for own, theirs in ((own_data.train, data.train), (own_data.validation, data.validation)):
            if not (isinstance(own, Tensors) and isinstance(theirs, Tensors)):
                raise TypeError(f"{type(own).__name__} cannot be shared; take Tensors")
            own.columns = theirs.columns

    def order(self) -> Tensor:
        """Return the order of this step's samples, and reseed the dropout generator."""
        seed = self.worker.seed
        place = self.trainer.strategy.dp_rank
        self.generator.manual_seed(derive(seed, "epoch", self.step, place))
        return permutation(derive(seed, "order", self.step), len(self.trainer.passes.data.train))

    def coefficients(self, optimizer: Optimizer, of: int) -> list[list[tuple[float, ...]]]:
        """Return the coefficients of a step's updates, by update and group of the optimizer.

        Args:
            of: number of updates in a step.
        """
        coefficients = []
        for index in range(of):
            self.trainer.set_rates((self.step - 1 + index / of) / self.worker.length)
            groups = self.trainer.state.optimizer.param_groups
            number = self.updates + index + 1
            coefficients.append([optimizer.coefficients(group, number) for group in groups])
        return coefficients

    def report(
        self, tallies: Mapping[str, Tensor], clip_tallies: Tensor | None, updates: int
    ) -> None:
        """Report the step, save a checkpoint if due, and go on to the next step.

        Args:
            clip_tallies: of gradient norms and of the share that was clipped, (2, 2).

        Raises:
            StopTrial: the order ends here.
        """
        trainer, step = self.trainer, self.step
        trainer.saver.progress.updates += updates
        samples = trainer.passes.data.trained_samples(trainer.task.batch)
        elements = max(float(tallies["train/loss"][1]), 1.0)
        trainer.state.loop_state.elements_per_sample = elements / samples
        if clip_tallies is not None:
            trainer.update.norms, trainer.update.clipped = clip_tallies.unbind()
        trainer.samples, trainer.skipped = samples, 0
        if step >= self.worker.next_step:
            trainer.print_samples(step)
            trainer.report(step, tallies)
        self.step += 1
