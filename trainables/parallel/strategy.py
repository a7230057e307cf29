"""The base classes of strategies: how ranks share the work of one model.

Each strategy is declared in trainables/strategies.py:STRATEGIES. Its starter makes the process
group.

Whatever the strategy, after the backward passes of an update each parameter's gradient is the mean
over all data-parallel ranks of their sums. A data-parallel rank is one rank, or several ranks that
share one model.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pkgutil import resolve_name

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from trainables.optim.clipping import By, Clipped, clip, total_norm
from trainables.parallel.plan import Plan, pairs
from trainables.strategies import STRATEGIES, StrategyType, default_strategy
from trainables.training_state import precision as formats
from trainables.training_state.loop_state import TrainingState
from trainables.worker import Worker


@dataclass(frozen=True)
class Strategy:
    """The strategy of a single rank; strategies for several ranks override what differs."""

    worker: Worker
    plan: Plan = pairs  # the layers that the ranks of a tensor group split

    @property
    def traits(self) -> StrategyType:
        """Return what holds for these ranks; one rank trains alone, whatever its options name."""
        alone = self.worker.world_size == 1
        return STRATEGIES[default_strategy(1)] if alone else self.worker.training.traits

    @property
    def dp_rank(self) -> int:
        """Return the index of this rank's share of each batch, from 0."""
        return self.worker.rank * self.dp_size // self.worker.world_size

    @property
    def dp_size(self) -> int:
        """Return the number of shares into which each batch is split."""
        return self.worker.training.dp_size(self.worker.world_size)

    @property
    def mesh(self) -> DeviceMesh | None:
        """Return the mesh of ranks, made on first use; None: it has one dimension without use."""
        return None

    @property
    def splits_batches(self) -> bool:
        """Return whether ranks run stages of the model, on micro-batches of each batch."""
        return False

    @property
    def grads_synchronized(self) -> bool:
        """Return whether all ranks make the same updates."""
        return True

    def to_device(self, model: nn.Module) -> nn.Module:
        """Return a new model where `shard` takes it, in the precision's formats if it is whole."""
        return formats.convert(model, self.worker.device, self.worker.training.precision)

    def shard(self, model: nn.Module) -> nn.Module:
        """Return the model with this rank's shard of its parameters; there is no optimizer yet."""
        return model

    def setup_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer for this rank's shard."""
        return optimizer

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model that forward passes call, once its parameters have their values."""
        sharing = self.worker.sharing
        return model if sharing is None else sharing.joined(model)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Add up gradients on this rank only, without exchange, within this context."""
        return nullcontext()

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context for forward passes."""
        return formats.autocast(self.worker.training.precision, self.worker.device)

    def eager(self) -> AbstractContextManager[object]:
        """Return a context without compiled code: generated text has new shapes at each step."""
        compiled = self.worker.training.compile != "none"
        return torch.compiler.set_stance("force_eager") if compiled else nullcontext()

    def after_forward(self) -> None:
        """Do the work between a forward pass and its backward pass, or its evaluation."""

    def begin_update(self, model: nn.Module, careful: bool) -> Tensor | None:
        """Prepare for the passes of an update; return a leaf whose gradient carries the tally.

        None: `reduce_loss_sum` sends the tally.

        Args:
            model: as it is wrapped.
            careful: memory may run out; ranks that can agree on that before exchanging should.
        """
        return None

    def micro_batch(
        self, model: nn.Module, last: bool, careful: bool
    ) -> AbstractContextManager[None]:
        """Return the context of a forward and a backward pass; gradients add up on this rank.

        Args:
            last: whether ranks may exchange gradients, as this is the update's last pass.
        """
        return nullcontext() if last else self.no_sync(model)

    def agrees_on_memory(self, careful: bool) -> bool:
        """Return whether `end_update` is to be called if memory ran out on this rank."""
        return False

    def end_update(self, model: nn.Module, careful: bool, failure: Exception | None) -> None:
        """Exchange those gradients that the passes did not.

        Args:
            failure: memory ran out in a pass; only where `agrees_on_memory`.

        Raises:
            AgreedOutOfMemory: memory ran out on some rank, and all ranks raise this.
        """

    def evaluating(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return the context of forward passes that no backward pass follows."""
        return nullcontext()

    def sync_replicas(self, state: TrainingState) -> None:
        """Make the models of ranks that trained apart equal, before evaluation or saving."""

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers (running means and such) of rank 0."""

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over data-parallel ranks; may overwrite `values`."""
        return values

    def reduce_loss_sum(self, tally: Tensor, model: nn.Module) -> Tensor:
        """Return the tally of all ranks for one update of the wrapped model."""
        return self.all_reduce_sum(tally.clone()) if self.dp_size > 1 else tally

    def all_reduce_max(self, values: Tensor) -> Tensor:
        """Return the largest of each value over all ranks; may overwrite `values`."""
        return values

    def sync_found_inf(self, found: Tensor) -> Tensor:
        """Return 1.0 if any rank that shares the update has an infinite gradient."""
        return self.all_reduce_max(found)

    def gradients(self, weights: Sequence[nn.Parameter]) -> list[Tensor]:
        """Return this rank's shards of the gradients of these weights, to be scaled in place."""
        return [weight.grad for weight in weights if weight.grad is not None]

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the norm of the complete model's gradient, equal on every rank."""
        return total_norm(gradients)

    def clip(self, model: nn.Module, most: float, by: By) -> Clipped:
        """Clip the gradients of the sharded model."""
        return clip(list(model.parameters()), most, by, self.norm)

    def after_update(self, model: nn.Module) -> None:
        """Do the work that follows an update."""

    def close(self) -> None:
        """Free what would outlive the order."""


@dataclass(frozen=True)
class Group(Strategy):
    """Several ranks, each with its own samples."""

    def shard(self, model: nn.Module) -> nn.Module:
        if not self.worker.training.sync_batchnorm:
            return model
        from trainables.parallel.batchnorm import synchronized

        return synchronized(model)

    def share_buffers(self, model: nn.Module) -> None:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        dist.all_reduce(values)
        return values

    def all_reduce_max(self, values: Tensor) -> Tensor:
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values


def choose(worker: Worker, plan: Plan = pairs) -> Strategy:
    """Return the strategy for this worker's ranks.

    Raises:
        ValueError: there are several ranks, but no process group.
    """
    if worker.world_size == 1:
        return Strategy(worker)
    if not dist.is_initialized():
        raise ValueError(f"{worker.world_size} ranks, but no process group; initialize one first")
    strategy: Strategy = resolve_name(worker.training.traits.strategy_class)(worker, plan)
    return strategy


def split_batch(at_B: Tensor, strategy: Strategy, parts: int) -> list[Tensor]:
    """Return this rank's share of a batch, split into micro-batches.

    Each rank has equally many, since passes may contain collectives: on a rank with fewer samples
    the last micro-batches are empty.

    Args:
        parts: the number of micro-batches, if some rank has that many samples.
    """
    share = at_B if strategy.dp_size == 1 else at_B[strategy.dp_rank :: strategy.dp_size]
    count = min(parts, largest_share(len(at_B), strategy))
    return [share] if count == 1 else list(share.tensor_split(count))


def largest_share(samples: int, strategy: Strategy) -> int:
    """Return how many of these samples the rank with the largest share gets."""
    return -(-samples // strategy.dp_size)
