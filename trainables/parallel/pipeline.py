"""Pipeline parallelism: each rank holds some of the layers, and micro-batches pass through them.

The model is an nn.Sequential, whose layers have a known order.

Axes: B samples of a batch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainables.data import Source
from trainables.parallel.microbatches import MicroBatches, seeded
from trainables.parallel.stages import RankStages, StageModule, shard_layers
from trainables.parallel.strategy import Group
from trainables.randomness import derive
from trainables.training_state.tallies import add_up, empty, tally_of

if TYPE_CHECKING:
    from trainables.trainer.forward_backward import ForwardBackward


@dataclass(frozen=True)
class Pipeline(Group):
    """Pipeline parallelism: one model over all ranks, each with some of its layers; a Strategy."""

    @property
    def splits_batches(self) -> bool:
        return True

    def shard(self, model: nn.Module) -> nn.Module:
        return shard_layers(model, self.worker, self.autocast)

    def share_buffers(self, model: nn.Module) -> None:
        """Do nothing: each rank has the buffers of its own layers."""

    def backward(
        self, passes: "ForwardBackward", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        line, compute = _line_of(passes.unwrapped_model), passes.losses
        batches = self._micro_batches(passes.data.train, parts, True)
        with passes.clock.phase("data"), passes.autocast():
            inputs = batches.inputs(compute) if line.is_first else []
        tally = empty(self.worker.device)
        # A scaler creates its scale on first use, which otherwise only the last rank would make.
        passes.scaler.scale(tally)

        def judge(output: Tensor, number: int) -> Tensor:
            if number >= len(parts):
                return passes.scaler.scale(output[:0].sum())
            with passes.autocast():
                losses = batches.carry(compute, number, output)
            tally.add_(tally_of(losses.detach()))
            return passes.scaler.scale(losses.sum() * scale)

        # Passes of several micro-batches overlap, so forward and backward cannot be timed apart.
        with passes.clock.phase("backward"), self._rank_generators(batches.seed):
            line.run(batches.shape, inputs, judge)
        return tally

    def evaluate(self, passes: "ForwardBackward", parts: Sequence[Tensor]) -> dict[str, Tensor]:
        tallies = add_up(self._evaluate(passes, part) for part in parts)
        names = [list(tallies)]
        dist.broadcast_object_list(names, src=self.worker.world_size - 1)
        return {name: tallies.get(name, empty(self.worker.device)) for name in names[0]}

    def show(self, passes: "ForwardBackward") -> str:
        """Return nothing: each rank has only some of the layers."""
        return ""

    def reduce_loss_sum(self, tally: Tensor, model: nn.Module) -> Tensor:
        # One data-parallel rank, but only the last rank of the pipeline has the losses.
        return self.all_reduce_sum(tally.clone())

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        rank_norm = super().norm(gradients).to(self.worker.device, torch.float64)
        return self.all_reduce_sum(rank_norm.square()).sqrt()

    def _evaluate(self, passes: "ForwardBackward", at_B: Tensor) -> dict[str, Tensor]:
        line, compute = _line_of(passes.unwrapped_model), passes.values
        parts = [part for part in at_B.tensor_split(self._num_micro_batches) if len(part)]
        batches = self._micro_batches(passes.data.validation, parts, False)
        with torch.no_grad(), passes.autocast():
            inputs = batches.inputs(compute) if line.is_first else []
        with self._rank_generators(batches.seed):
            outputs = line.run(batches.shape, inputs, None)[: len(parts)]
        with torch.no_grad(), passes.autocast():
            values = [batches.carry(compute, *numbered) for numbered in enumerate(outputs)]
        self.worker.beat()
        return add_up({name: tally_of(loss) for name, loss in batch.items()} for batch in values)

    @property
    def _num_micro_batches(self) -> int:
        """Return the micro-batches of each batch: a fixed number, for the schedule."""
        return self.worker.training.accumulate << self.worker.shrink

    def _micro_batches(
        self, source: Source, parts: Sequence[Tensor], training: bool
    ) -> MicroBatches:
        # All ranks draw only this from their generators, which therefore stay equal.
        seed = int(torch.randint(2**62, ()))
        return MicroBatches(source, parts, self._num_micro_batches, seed, training)

    def _rank_generators(self, seed: int) -> AbstractContextManager[None]:
        """Seed the ranks' generators apart: equal layers of two ranks would drop alike."""
        return seeded(derive(seed, "rank", self.worker.rank), self.worker.device)


def _line_of(model: nn.Module) -> RankStages:
    if not isinstance(model, StageModule):
        raise TypeError(f"model is {type(model).__name__}; shard it before training")
    return model.line
