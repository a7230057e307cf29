"""Local SGD: ranks train alone and average their weights now and then, so a slow one delays less.

Source: Lin, Stich, Patel & Jaggi, Don't Use Large Mini-Batches, Use Local SGD (2020), Algorithm 1,
whose number of local steps H is `sync_every`. Momenta stay each rank's own (section 4.1, "local
momentum"); at the end of an epoch they are averaged too, as in Yu, Jin & Yang, On the Linear
Speedup Analysis of Communication Efficient Momentum SGD (2019), Algorithm 1, so that a checkpoint
holds the complete state.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from trainables.optim.chained import weights_of
from trainables.parallel.averaging import average
from trainables.parallel.strategy import Group
from trainables.training_state.loop_state import TrainingState
from trainables.training_state.micro_batch_halving import AgreedOutOfMemory


@dataclass
class LocalProgress:
    """The updates that a rank has made since the last average."""

    updates: int = 0


@dataclass(frozen=True)
class LocalSgd(Group):
    """Local SGD, in which each rank computes, clips and skips its own updates; a Strategy.

    Between averages no rank waits for another.
    """

    progress: LocalProgress = field(default_factory=LocalProgress, compare=False)

    @property
    def grads_synchronized(self) -> bool:
        return self.worker.training.sync_every == 1

    def agrees_on_memory(self, careful: bool) -> bool:
        return True  # no other rank waits for this one, so it is enough that this rank knows

    def end_update(self, model: nn.Module, careful: bool, failure: Exception | None) -> None:
        if failure is not None:
            raise AgreedOutOfMemory(f"out of memory: {failure}") from failure

    def reduce_loss_sum(self, tally: Tensor, model: nn.Module) -> Tensor:
        if self.grads_synchronized:
            return super().reduce_loss_sum(tally, model)
        return tally * self.dp_size  # as if all ranks had this rank's tally

    def sync_found_inf(self, found: Tensor) -> Tensor:
        return found

    def after_update(self, model: nn.Module) -> None:
        self.progress.updates += 1
        if self.progress.updates == self.worker.training.sync_every:
            average(_trained_weights(model))
            self.progress.updates = 0

    def sync_replicas(self, state: TrainingState) -> None:
        average(_trained_weights(state.model))
        if state.average is not None:
            average(list(state.average.state_dict()["averages"].values()))
        momenta = _momenta(state.optimizer)
        # A rank that skipped all of its updates has no momenta yet.
        counts = torch.tensor([len(momenta), -len(momenta)], device=self.worker.device)
        largest, negative_smallest = self.all_reduce_max(counts).tolist()
        if largest == -negative_smallest:
            average(momenta)
        self.progress.updates = 0


def _trained_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return all weights but the frozen ones, which rounding would move."""
    return [weight for weight in model.parameters() if weight.requires_grad]


def _momenta(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return what the optimizer remembers of gradients, in an order equal on all ranks."""
    return [
        value
        for weight in weights_of(optimizer)
        for value in optimizer.state.get(weight, {}).values()
        if isinstance(value, Tensor) and value.ndim > 0 and value.is_floating_point()
    ]
