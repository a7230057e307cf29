"""Strategies: how ranks share the work of one model. Their starter makes the process group.

Whatever the strategy, after the backward passes of an update each parameter's gradient is the mean
over all data-parallel ranks of their sums. A data-parallel rank is one rank, or several ranks that
share one model.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from trainables.optim.clipping import By, Clipped, clip, total_norm
from trainables.parallel.plan import Plan, pairs
from trainables.parallel.scoring import Predictions, defines
from trainables.strategies import STRATEGIES, StrategyType, default_strategy
from trainables.training_state import precision as formats
from trainables.training_state.tallies import add_up
from trainables.worker import Worker

if TYPE_CHECKING:
    from trainables.trainer.forward_backward import ForwardBackward
    from trainables.training_state.loop_state import TrainingState


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
        """Return whether the strategy itself splits validation batches into micro-batches."""
        return False

    @property
    def grads_synchronized(self) -> bool:
        """Return whether all ranks make the same updates."""
        return True

    def place(self, model: nn.Module) -> nn.Module:
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
        return model

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

    def backward(
        self, passes: "ForwardBackward", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        """Add up the gradients of this rank's micro-batches, and exchange them.

        Args:
            parts: positions of the samples of each micro-batch; equally many on each rank.
            scale: factor on the summed losses.
            careful: memory may run out; ranks that can agree on that before exchanging should.

        Returns:
            the tally of losses.

        Raises:
            AgreedOutOfMemory: memory ran out on some rank, and all ranks raise this.
        """
        carrier = self.loss_sum_param(passes.model)
        if len(parts) == 1:
            return passes.backward(parts[0], scale, carrier)
        with self.no_sync(passes.model):
            tallies = [passes.backward(part, scale, carrier) for part in parts[:-1]]
        return torch.stack([*tallies, passes.backward(parts[-1], scale, carrier)]).sum(dim=0)

    def evaluate(self, passes: "ForwardBackward", parts: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the tally of each metric over these samples, with the same names on every rank."""
        tallies, predicts = [], defines(passes.task, "predict")
        predictions = Predictions(passes.task, self.worker, self.worker.world_size // self.dp_size)
        for part in parts:
            tally, found = passes.evaluate(part)
            tallies.append(tally)
            if predicts:
                predictions.gather(part, found)
            self.worker.beat()
        sums = add_up(tallies)
        for name, score in (predictions.score(sums.keys()) if predicts else {}).items():
            # Of one share only: the mean over ranks has the same bits then.
            counted = [score, 1.0] if self.dp_rank == 0 else [0.0, 0.0]
            sums[name] = torch.tensor(counted, dtype=torch.float64, device=self.worker.device)
        return sums

    def show(self, passes: "ForwardBackward") -> str:
        """Return the text that the task shows of its model; every rank calls this."""
        with torch.no_grad(), passes.autocast(), self.eager():
            return passes.task.show(passes.unwrapped_model)

    def sync_replicas(self, state: "TrainingState") -> None:
        """Make the models of ranks that trained apart equal, before evaluation or saving."""

    def share_buffers(self, model: nn.Module) -> None:
        """Give every rank the buffers (running means and such) of rank 0."""

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over data-parallel ranks; may overwrite `values`."""
        return values

    def loss_sum_param(self, model: nn.Module) -> Tensor | None:
        """Return a leaf of the wrapped model whose gradient may carry the tally to other ranks."""
        return None

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
