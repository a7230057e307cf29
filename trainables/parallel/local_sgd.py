"""Ranks that train on their own, and average their weights now and then: a slow one delays less.

Source: Lin, Stich, Patel & Jaggi, Don't Use Large Mini-Batches, Use Local SGD (2020), Algorithm 1,
whose number of local steps H is `average_every`. Momenta stay each rank's own (section 4.1, "local
momentum"); at the end of an epoch they are averaged too, as in Yu, Jin & Yang, On the Linear
Speedup Analysis of Communication Efficient Momentum SGD (2019), Algorithm 1, so that a checkpoint
holds all there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainables.fitting.memory import AgreedOutOfMemory
from trainables.parallel.averaging import average
from trainables.parallel.strategies import Group
from trainables.scripts.endings import out_of_memory

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes
    from trainables.fitting.state import TrainingState


@dataclass
class Local:
    """How far a rank has gone on its own."""

    updates: int = 0


@dataclass(frozen=True)
class LocalSgd(Group):
    """Each update is this rank's own: its gradient, its clipping, its skipping; a Strategy.

    Between averages no rank waits for another.
    """

    alone: Local = field(default_factory=Local, compare=False)

    @property
    def alike(self) -> bool:
        return self.worker.training.average_every == 1

    def backward(
        self, passes: "Passes", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        try:
            return super().backward(passes, parts, scale, careful)
        except Exception as error:
            if not out_of_memory(error):
                raise
            failure = error.with_traceback(None)  # which holds the activations
        # Nobody waits for this rank, so that it knows is enough.
        raise AgreedOutOfMemory(f"out of memory: {failure}") from failure

    def total(self, tally: Tensor, model: nn.Module) -> Tensor:
        if self.alike:
            return super().total(tally, model)
        return tally * self.places  # as if all had what this rank has

    def overflows(self, found: Tensor) -> Tensor:
        return found

    def after_update(self, model: nn.Module) -> None:
        self.alone.updates += 1
        if self.alone.updates == self.worker.training.average_every:
            average(_learning(model))
            self.alone.updates = 0

    def agree(self, state: "TrainingState") -> None:
        average(_learning(state.model))
        if state.average is not None:
            average(list(state.average.state_dict()["averages"].values()))
        momenta = _momenta(state.optimizer)
        # A rank that skipped all of its updates has none yet.
        most, least = self._extremes(len(momenta))
        if most == least:
            average(momenta)
        self.alone.updates = 0

    def _extremes(self, number: int) -> tuple[int, int]:
        """The largest and the smallest of each rank's number."""
        own = torch.tensor([number, -number], device=self.worker.device)
        most, least = self.worst(own).tolist()
        return most, -least


def _learning(model: nn.Module) -> list[nn.Parameter]:
    """All weights but the frozen ones, which rounding would move."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def _momenta(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """What the optimizer remembers of gradients, in an order that is the same on every rank."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return [
        value
        for weight in weights
        for value in optimizer.state.get(weight, {}).values()
        if isinstance(value, Tensor) and value.ndim > 0 and value.is_floating_point()
    ]
