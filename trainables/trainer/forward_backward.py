"""Forward and backward passes over micro-batches, of which every strategy is made.

Axes: B samples of a micro-batch.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward  # no public name without the check

from trainables.data import Batch, Data
from trainables.monitoring.clock import Clock
from trainables.parallel.batchnorm import absent
from trainables.trainer.per_element import checked
from trainables.training_state.precision import Scaler
from trainables.training_state.tallies import empty, tally_of

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass(frozen=True)
class ForwardBackward:
    """The passes of a task's losses and metrics through this rank's model."""

    task: "Task"
    model: nn.Module  # as the strategy wrapped it
    unwrapped_model: nn.Module  # as the strategy sharded it
    data: Data
    autocast: Callable[[], AbstractContextManager[None]]
    after_forward: Callable[[], None]  # see Strategy.after_forward
    eager: Callable[[], AbstractContextManager[object]]  # see Strategy.eager
    scaler: Scaler
    clock: Clock
    turn: str = ""  # whose losses these are; empty: the task's optimizers take no turns
    looked_at: set[str] = field(default_factory=set)  # see per_element.checked

    def backward(self, at_B: Tensor, scale: float, carrier: Tensor | None = None) -> Tensor:
        """Add the gradient of the losses' sum, times `scale`; return the tally of losses.

        Without samples this is a pass of one sample that does not count, since other ranks may
        exchange values in their pass.

        Args:
            carrier: a leaf that gets the tally as its gradient.
        """
        if len(at_B):
            return self._backward_sample(at_B, scale, True, carrier)
        with absent(self.unwrapped_model):
            return self._backward_sample(at_B.new_zeros(1), 0.0, False, carrier)

    def _backward_sample(
        self, at_B: Tensor, scale: float, counts: bool, carrier: Tensor | None
    ) -> Tensor:
        with self.clock.phase("data"):
            batch = self.data.train.batch(at_B)
        with self.clock.phase("forward"), self.autocast():
            losses = self.losses(self.model, batch)
        self.after_forward()
        tally = tally_of(losses.detach()) if counts else empty(losses.device)
        with self.clock.phase("backward"):
            loss = self.scaler.scale(losses)
            self.clock.split(loss)
            # This is the gradient of the losses' sum times `scale`, without computing the sum.
            roots: tuple[Tensor, ...] = (loss,)
            gradients: tuple[Tensor, ...] = (torch.full_like(loss, scale),)
            if carrier is not None:
                roots, gradients = (*roots, carrier), (*gradients, tally.to(carrier.dtype))
            # As torch.autograd.backward, whose check of shapes takes 30 us (torch 2.13).
            _engine_run_backward(
                roots, gradients, False, False, (), allow_unreachable=True, accumulate_grad=True
            )
        return tally

    def evaluate(self, at_B: Tensor) -> tuple[dict[str, Tensor], Mapping[str, Tensor]]:
        """Return the tally of each metric, and the task's predictions, unchecked.

        Without samples: tallies of 0 under the same names, and no predictions.
        """
        if not len(at_B):
            names, _ = self.evaluate(at_B.new_zeros(1))
            return {name: torch.zeros_like(tally) for name, tally in names.items()}, {}
        batch = self.data.validation.batch(at_B)
        with torch.no_grad(), self.autocast():
            values = self.values(self.unwrapped_model, batch)
            with self.eager():
                found = self.task.predict(self.unwrapped_model, batch)
        self.after_forward()
        return {name: tally_of(value) for name, value in values.items()}, found

    def losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the task's losses for a batch, checked."""
        if self.turn:
            method, losses = "compute_turn", self.task.compute_turn(self.turn, model, batch)
        else:
            method, losses = "compute_losses", self.task.compute_losses(model, batch)
        return checked(self.task, method, {"": losses}, batch, self.looked_at)[""]

    def values(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return the values of the task's evaluation for a batch, checked."""
        values = self.task.evaluate(model, batch)
        return checked(self.task, "evaluate", values, batch, self.looked_at)
