"""How ranks share the work of one model. The process group is made by whoever started them.

Whatever the strategy, after the backward passes of an update each parameter's gradient is the mean
over all places of what each place added up; a place is one rank, or ranks that share one model.
"""

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.fitting import precision as formats
from trainables.fitting.tallies import add_up
from trainables.optim.clipping import By, Clipped, clip, total_norm
from trainables.parallel.plan import Plan, pairs
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes
    from trainables.fitting.state import TrainingState


HOMES = {  # of each way to use several ranks; what a trial does not need is not imported
    "ddp": "trainables.parallel.ddp:Ddp",
    "fsdp": "trainables.parallel.fsdp:Fsdp",
    "zero1": "trainables.parallel.zero1:Zero1",
    "local_sgd": "trainables.parallel.local_sgd:LocalSgd",
    "tensor": "trainables.parallel.tensor:TensorParallel",
    "pipeline": "trainables.parallel.pipeline:Pipeline",
    "deepspeed": "trainables.parallel.deepspeed:DeepSpeed",
}


@dataclass(frozen=True)
class Strategy:
    """One rank that trains alone; each way to use several overrides what differs."""

    worker: Worker
    plan: Plan = pairs  # which layers the ranks of a tensor group split

    @property
    def place(self) -> int:
        """Which part of each batch is dealt to this rank; from 0."""
        return self.worker.rank

    @property
    def places(self) -> int:
        """Into how many parts each batch is dealt."""
        return self.worker.world_size

    @property
    def home(self) -> torch.device:
        """Where the model is made, before it is sharded."""
        return self.worker.device

    @property
    def splits(self) -> bool:
        """Whether it makes micro-batches itself of what it evaluates."""
        return False

    @property
    def alike(self) -> bool:
        """Whether all ranks make the same updates."""
        return True

    def shard(self, model: nn.Module) -> nn.Module:
        """The model with this rank's part of its parameters; before there is an optimizer."""
        return model

    def adopt(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """The optimizer of this rank's part."""
        return optimizer

    def wrap(self, model: nn.Module) -> nn.Module:
        """What forward passes call, once parameters have their values."""
        return model

    def local(self, model: nn.Module) -> AbstractContextManager[None]:
        """Within it, gradients are added up at this place only."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[None]:
        """The context for forward passes."""
        return formats.autocast(self.worker.training.precision, self.worker.device)

    def backward(
        self, passes: "Passes", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        """Add up the gradients of this place's micro-batches, and exchange them.

        Args:
            parts: positions of the samples of each micro-batch, as many at each place.
            scale: of the summed losses.
            careful: memory may run out; where ranks can agree on that first, they should.

        Returns:
            the tally of losses.

        Raises:
            AgreedOutOfMemory: memory ran out on some rank, and all ranks raise this.
        """
        carrier = self.carrier(passes.model)
        if len(parts) == 1:
            return passes.backward(parts[0], scale, carrier)
        with self.local(passes.model):
            own = [passes.backward(part, scale, carrier) for part in parts[:-1]]
        return torch.stack([*own, passes.backward(parts[-1], scale, carrier)]).sum(dim=0)

    def evaluate(self, passes: "Passes", parts: Sequence[Tensor]) -> dict[str, Tensor]:
        """The tally of each metric over these samples, the same names at every place."""
        found = []
        for part in parts:
            found.append(passes.evaluate(part))
            self.worker.beat()
        return add_up(found)

    def show(self, passes: "Passes") -> str:
        """What the task shows of its model; every rank calls it."""
        # Not compiled: what is written token by token has another shape each time.
        compiled = self.worker.training.compile != "none"
        eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
        with torch.no_grad(), passes.autocast(), eager:
            return passes.task.show(passes.bare)

    def agree(self, state: "TrainingState") -> None:
        """Make ranks that have trained apart equal, before they are judged or saved."""

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers (running means and such) of rank 0."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum over places; may overwrite `values`."""
        return values

    def carrier(self, model: nn.Module) -> Tensor | None:
        """A leaf of the wrapped model whose gradient may carry the tally to the other places."""
        return None

    def total(self, tally: Tensor, model: nn.Module) -> Tensor:
        """The tally of all places for one update of the wrapped model."""
        return self.sum(tally.clone()) if self.places > 1 else tally

    def worst(self, values: Tensor) -> Tensor:
        """The largest of each value over all ranks; may overwrite `values`."""
        return values

    def overflows(self, found: Tensor) -> Tensor:
        """Whether an update has an infinite gradient, as those who share it see it; 1.0: yes."""
        return self.worst(found)

    def gradients(self, weights: Sequence[nn.Parameter]) -> list[Tensor]:
        """What this rank has of the gradients of these weights, to be scaled in place."""
        return [each.grad for each in weights if each.grad is not None]

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm of the whole model's gradient, equal on every rank."""
        return total_norm(gradients)

    def clip(self, model: nn.Module, most: float, by: By) -> Clipped:
        """Clip the gradients of the sharded model."""
        return clip(list(model.parameters()), most, by, self.norm)

    def after_update(self, model: nn.Module) -> None:
        """What is left to do once an update is made."""

    def close(self) -> None:
        """Let go of what would outlive the order."""


@dataclass(frozen=True)
class Group(Strategy):
    """Several ranks, each with samples of its own."""

    def shard(self, model: nn.Module) -> nn.Module:
        if not self.worker.training.sync_batchnorm:
            return model
        from trainables.parallel.batchnorm import synchronized

        return synchronized(model)

    def share_buffers(self, model: nn.Module) -> None:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)

    def sum(self, values: Tensor) -> Tensor:
        dist.all_reduce(values)
        return values

    def worst(self, values: Tensor) -> Tensor:
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values


def choose(worker: Worker, plan: Plan = pairs) -> Strategy:
    """The strategy for this worker's ranks.

    Raises:
        ValueError: there are several ranks, but they have not met.
    """
    if worker.world_size == 1:
        return Strategy(worker)
    if not dist.is_initialized():
        raise ValueError(f"{worker.world_size} ranks, but no process group; initialize one first")
    module, _, name = HOMES[worker.training.strategy].partition(":")
    made: Strategy = getattr(importlib.import_module(module), name)(worker, plan)
    return made


def deal(at_B: Tensor, strategy: Strategy, parts: int) -> list[Tensor]:
    """This place's part of a batch, in micro-batches.

    There are as many at each place, since ranks may have to meet in each pass: the last ones of a
    place that has fewer samples are empty.

    Args:
        parts: into how many, if some place has so many samples.
    """
    own = at_B if strategy.places == 1 else at_B[strategy.place :: strategy.places]
    number = min(parts, most(at_B, strategy))
    return [own] if number == 1 else list(own.tensor_split(number))


def most(at_B: Tensor, strategy: Strategy) -> int:
    """The number of samples at the place that gets most of a batch."""
    return -(-len(at_B) // strategy.places)
