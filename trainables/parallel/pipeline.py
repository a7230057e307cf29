"""Layers dealt out among ranks, through which micro-batches pass: pipeline parallelism.

The model is an nn.Sequential, since that says what follows what.

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
from trainables.fitting.tallies import add_up, empty, tally_of
from trainables.parallel.microbatches import MicroBatches, drawing
from trainables.parallel.stages import Line, Part, divide
from trainables.parallel.strategies import Group
from trainables.randomness import derive

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes


@dataclass(frozen=True)
class Pipeline(Group):
    """One model over all ranks, each with some of its layers; a Strategy."""

    @property
    def place(self) -> int:
        return 0

    @property
    def places(self) -> int:
        return 1

    @property
    def splits(self) -> bool:
        return True

    def shard(self, model: nn.Module) -> nn.Module:
        return divide(model, self.worker, self.autocast)

    def share_buffers(self, model: nn.Module) -> None:
        """Each rank has those of its own layers."""

    def backward(
        self, passes: "Passes", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        line, compute = _line(passes.bare), passes.task.compute_losses
        batches = self._deal(passes.data.train, parts, True)
        with passes.clock.part("data"), passes.autocast():
            inputs = batches.inputs(compute) if line.is_first else []
        tally = empty(self.worker.device)
        # A scaler makes its scale when it is first used: by the last rank alone otherwise.
        passes.scaler.scale(tally)

        def judge(output: Tensor, number: int) -> Tensor:
            if number >= len(parts):
                return passes.scaler.scale(output[:0].sum())
            with passes.autocast():
                losses = batches.carry(compute, number, output)
            tally.add_(tally_of(losses.detach()))
            return passes.scaler.scale(losses.sum() * scale)

        # Passes of several micro-batches overlap, so forward and backward cannot be told apart.
        with passes.clock.part("backward"), self._apart(batches.seed):
            line.run(batches.shape, inputs, judge)
        return tally

    def evaluate(self, passes: "Passes", parts: Sequence[Tensor]) -> dict[str, Tensor]:
        found = add_up(self._evaluate(passes, part) for part in parts)
        box = [list(found)]
        dist.broadcast_object_list(box, src=self.worker.world_size - 1)
        return {name: found.get(name, empty(self.worker.device)) for name in box[0]}

    def show(self, passes: "Passes") -> str:
        """Nothing: each rank has some of the layers."""
        return ""

    def total(self, tally: Tensor, model: nn.Module) -> Tensor:
        return self.sum(tally.clone())  # one place, but the last rank alone has the losses

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        own = super().norm(gradients).to(self.worker.device, torch.float64)
        return self.sum(own.square()).sqrt()

    def _evaluate(self, passes: "Passes", at_B: Tensor) -> dict[str, Tensor]:
        line, compute = _line(passes.bare), passes.task.evaluate
        parts = [part for part in at_B.tensor_split(self._parts) if len(part)]
        batches = self._deal(passes.data.validation, parts, False)
        with torch.no_grad(), passes.autocast():
            inputs = batches.inputs(compute) if line.is_first else []
        with self._apart(batches.seed):
            outputs = line.run(batches.shape, inputs, None)[: len(parts)]
        with torch.no_grad(), passes.autocast():
            values = [batches.carry(compute, *numbered) for numbered in enumerate(outputs)]
        self.worker.beat()
        return add_up({name: tally_of(each) for name, each in one.items()} for one in values)

    @property
    def _parts(self) -> int:
        """Micro-batches of each batch: as many where it has fewer samples, for the schedule."""
        return self.worker.training.accumulate << self.worker.shrink

    def _deal(self, source: Source, parts: Sequence[Tensor], training: bool) -> MicroBatches:
        # All ranks draw this and nothing else from their generators, which so stay equal.
        seed = int(torch.randint(2**62, ()))
        return MicroBatches(source, parts, self._parts, seed, training)

    def _apart(self, seed: int) -> AbstractContextManager[None]:
        """Random numbers of this rank's own: layers of one shape on two ranks would drop alike."""
        return drawing(derive(seed, "rank", self.worker.rank), self.worker.device)


def _line(model: nn.Module) -> Line:
    if not isinstance(model, Part):
        raise TypeError(f"model is {type(model).__name__}; shard it before training")
    return model.line
