"""Forward and backward passes over micro-batches: what every strategy is made of.

Axes: B samples of a micro-batch.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainables.data import Data
from trainables.fitting.precision import Scaler
from trainables.fitting.tallies import empty, tally_of
from trainables.parallel.batchnorm import absent
from trainables.watching.clock import Clock

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass(frozen=True)
class Passes:
    """A task's losses and metrics on this rank's model."""

    task: "Task"
    model: nn.Module  # as the strategy wrapped it
    bare: nn.Module  # as the strategy sharded it
    data: Data
    autocast: Callable[[], AbstractContextManager[None]]
    scaler: Scaler
    clock: Clock

    def backward(self, at_B: Tensor, scale: float, carrier: Tensor | None = None) -> Tensor:
        """Add the gradient of the losses' sum, times `scale`; returns the tally of losses.

        Without samples it is a pass of one that does not count, for ranks that meet in theirs.

        Args:
            carrier: a leaf that gets the tally as its gradient.
        """
        if len(at_B):
            return self._backward(at_B, scale, True, carrier)
        with absent(self.bare):
            return self._backward(at_B.new_zeros(1), 0.0, False, carrier)

    def _backward(self, at_B: Tensor, scale: float, counts: bool, carrier: Tensor | None) -> Tensor:
        with self.clock.part("data"):
            batch = self.data.train.batch(at_B)
        with self.clock.part("forward"), self.autocast():
            losses = self.task.compute_losses(self.model, batch)
        tally = tally_of(losses.detach()) if counts else empty(losses.device)
        with self.clock.part("backward"):
            loss = self.scaler.scale(losses)
            self.clock.split(loss)
            # The gradient of their sum times `scale`, without computing that.
            roots, gradients = [loss], [torch.full_like(loss, scale)]
            if carrier is not None:
                roots.append(carrier)
                gradients.append(tally.to(carrier.dtype))
            torch.autograd.backward(roots, gradients)
        return tally

    def evaluate(self, at_B: Tensor) -> dict[str, Tensor]:
        """The tally of each metric; of no samples, likewise."""
        if not len(at_B):
            names = self.evaluate(at_B.new_zeros(1))
            return {name: torch.zeros_like(tally) for name, tally in names.items()}
        batch = self.data.validation.batch(at_B)
        with torch.no_grad(), self.autocast():
            values = self.task.evaluate(self.bare, batch)
        return {name: tally_of(value) for name, value in values.items()}
