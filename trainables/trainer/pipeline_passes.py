"""Forward and backward passes through a pipeline: a schedule runs the micro-batches of a batch.

Axes: B samples of a batch.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trainables.data import Source
from trainables.parallel.microbatches import MicroBatches, seeded
from trainables.parallel.stages import RankStages, StageModule
from trainables.randomness import derive
from trainables.trainer.forward_backward import ForwardBackward
from trainables.training_state.tallies import add_up, empty, tally_of
from trainables.worker import Worker


@dataclass(frozen=True)
class PipelinePasses(ForwardBackward):
    """The passes of a task's losses and metrics through all ranks' stages."""

    def backward(self, parts: Sequence[Tensor], scale: float, careful: bool) -> Tensor:
        batches = self._micro_batches(self.data.train, parts, True)
        with self.clock.phase("data"), self.strategy.autocast():
            inputs = batches.inputs(self.losses) if self._line.is_first else []
        tally = empty(self._worker.device)
        # A scaler creates its scale on first use, which otherwise only the last rank would make.
        self.scaler.scale(tally)

        def judge(output: Tensor, number: int) -> Tensor:
            if number >= len(parts):
                return self.scaler.scale(output[:0].sum())
            with self.strategy.autocast():
                losses = batches.carry(self.losses, number, output)
            tally.add_(tally_of(losses.detach()))
            return self.scaler.scale(losses.sum() * scale)

        # Passes of several micro-batches overlap, so forward and backward cannot be timed apart.
        with self.clock.phase("backward"), self._rank_generators(batches.seed):
            self._line.run(batches.shape, inputs, judge)
        return tally

    def evaluate(self, parts: Sequence[Tensor]) -> dict[str, Tensor]:
        tallies = add_up(self._evaluate(part) for part in parts)
        names = [list(tallies)]
        dist.broadcast_object_list(names, src=self._worker.world_size - 1)
        return {name: tallies.get(name, empty(self._worker.device)) for name in names[0]}

    def show(self) -> str:
        """Return nothing: each rank has only some of the layers."""
        return ""

    def _evaluate(self, at_B: Tensor) -> dict[str, Tensor]:
        parts = [part for part in at_B.tensor_split(self._num_micro_batches) if len(part)]
        batches = self._micro_batches(self.data.validation, parts, False)
        with torch.no_grad(), self.strategy.autocast():
            inputs = batches.inputs(self.values) if self._line.is_first else []
        with self._rank_generators(batches.seed):
            outputs = self._line.run(batches.shape, inputs, None)[: len(parts)]
        with torch.no_grad(), self.strategy.autocast():
            values = [batches.carry(self.values, *numbered) for numbered in enumerate(outputs)]
        self._worker.beat()
        return add_up({name: tally_of(loss) for name, loss in batch.items()} for batch in values)

    @property
    def _worker(self) -> Worker:
        return self.strategy.worker

    @property
    def _line(self) -> RankStages:
        if not isinstance(self.unwrapped_model, StageModule):
            name = type(self.unwrapped_model).__name__
            raise TypeError(f"model is {name}; shard it before training")
        return self.unwrapped_model.line

    @property
    def _num_micro_batches(self) -> int:
        """Return the micro-batches of each batch: a fixed number, for the schedule."""
        return self._worker.training.accumulate << self._worker.shrink

    def _micro_batches(
        self, source: Source, parts: Sequence[Tensor], training: bool
    ) -> MicroBatches:
        # All ranks draw only this from their generators, which therefore stay equal.
        seed = int(torch.randint(2**62, ()))
        return MicroBatches(source, parts, self._num_micro_batches, seed, training)

    def _rank_generators(self, seed: int) -> AbstractContextManager[None]:
        """Seed the ranks' generators apart: equal layers of two ranks would drop alike."""
        return seeded(derive(seed, "rank", self._worker.rank), self._worker.device)
