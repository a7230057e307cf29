"""One trial of a batch: its session, as it would have alone, and where it is in its order."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainables.batched.optimizers import Optimizer
from trainables.batched.shares import Shares
from trainables.checkpoints.checkpoint import Period
from trainables.data import Data, Tensors
from trainables.fitting.fit import prepare
from trainables.fitting.loop import Session
from trainables.randomness import derive, permutation
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass(eq=False)
class Member:
    """A trial that trains at once with others."""

    session: Session
    closing: ExitStack  # what is to be closed when it leaves
    generator: torch.Generator  # of its dropout
    step: int  # the next one, or the one that is under way
    shares: Shares  # its session's gauges
    updates: int = 0  # that its optimizer has made

    @classmethod
    def begin(cls, task: "Task", worker: Worker) -> "Member":
        """One at the start of its order; a step that its checkpoint was amid is finished alone.

        Raises:
            StopTrial: that step's report was the last.
        """
        with ExitStack() as stack:
            session = stack.enter_context(prepare(task, worker))
            stack.enter_context(session.saver)
            stack.enter_context(closing(session.passes.data))
            step = worker.first
            if worker.within:
                losses = session.train_epoch(step, worker.within)
                if step >= worker.next_step:
                    session.report(step, {"train/loss": losses, **session.evaluate()})
                step += 1
            generator = torch.Generator(worker.device)
            session.gauges = shares = Shares(worker)
            return cls(session, stack.pop_all(), generator, step, shares)

    @property
    def worker(self) -> Worker:
        return self.session.worker

    @property
    def is_over(self) -> bool:
        """Whether its order has no step left."""
        return self.step > self.worker.until

    @property
    def saves(self) -> bool:
        """Whether a checkpoint may be due at this step's end."""
        return self.worker.due(self.step) or isinstance(self.worker.every, Period)

    def share(self, data: Data) -> None:
        """Take samples from where these are, which are the same: they lie on the device once.

        Raises:
            TypeError: they are no Tensors.
        """
        held = self.session.passes.data
        for own, theirs in ((held.train, data.train), (held.validation, data.validation)):
            if not (isinstance(own, Tensors) and isinstance(theirs, Tensors)):
                raise TypeError(f"{type(own).__name__} cannot be shared; take Tensors")
            own.columns = theirs.columns

    def order(self) -> Tensor:
        """The positions of this step's samples, as alone; its generator begins anew."""
        seed = self.worker.seed
        place = self.session.strategy.place
        self.generator.manual_seed(derive(seed, "step", self.step, place))
        return permutation(derive(seed, "order", self.step), len(self.session.passes.data.train))

    def coefficients(self, optimizer: Optimizer, of: int) -> list[list[tuple[float, ...]]]:
        """What each of a step's updates is computed with, by group of the optimizer.

        Args:
            of: updates of a step.
        """
        found = []
        for index in range(of):
            self.session.set_rates((self.step - 1 + index / of) / self.worker.total)
            groups = self.session.state.optimizer.param_groups
            number = self.updates + index + 1
            found.append([optimizer.coefficients(group, number) for group in groups])
        return found

    def report(self, tallies: Mapping[str, Tensor], cut: Tensor | None, updates: int) -> None:
        """Report the step, and save what is due; then the next one.

        Args:
            cut: tallies of gradient norms and of the share that was clipped, (2, 2).

        Raises:
            StopTrial: the order ends here.
        """
        session, step = self.session, self.step
        session.saver.progress.updates += updates
        session.state.marks.each = max(float(tallies["train/loss"][1]), 1.0) / len(
            session.passes.data.train
        )
        if cut is not None:
            session.update.norms, session.update.clipped = cut.unbind()
        if step >= self.worker.next_step:
            session.show(step)
            session.report(step, tallies)
        self.step += 1
