"""The rank of a pipeline that takes most: its layers, and the micro-batches that are under way.

Sources of how many are: GPipe, Huang et al. (2019), section 2.3; 1F1B and interleaved stages,
Narayanan et al., Efficient Large-Scale Language Model Training (2021), section 2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from trainables.data import Batch
from trainables.forecasting.kernels import chosen
from trainables.forecasting.ledger import Ledger
from trainables.forecasting.outline import faked, outline
from trainables.forecasting.rehearsal import Course, Rehearsal, explained, optimizer_of, worker_of
from trainables.parallel.microbatches import Asked, Probe, StandIn
from trainables.parallel.stages import Part, Stage, divide
from trainables.parallel.strategies import Strategy
from trainables.training import Training

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass
class Staged(Rehearsal):
    """A rank that has some of the layers."""

    stages: Sequence[tuple[Stage, Tensor]] = ()  # each with what it is given
    judges: bool = False  # whether its last output makes the losses

    def _outputs(self, batch: Batch) -> list[Tensor]:
        outputs = [
            stage(given.detach().requires_grad_(given.is_floating_point()))
            for stage, given in self.stages
        ]
        if self.judges:
            with self.strategy.autocast():
                outputs[-1] = self.task.compute_losses(StandIn(outputs[-1]), batch)
        return outputs


def rehearse_line(task: "Task", training: Training, ranks: int, batch: Batch, gpu: bool) -> Course:
    """An update of the rank of a pipeline that takes most; `batch` is a micro-batch.

    Raises:
        NotForeseen: the task needs numbers; the message says where.
        ValueError: the model cannot be divided.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    found = []
    for rank in range(ranks):
        worker = replace(worker_of(training, ranks), rank=rank)
        strategy = Strategy(worker)
        bare = faked(outline(task, worker.training), mode)
        everyone = [
            divide(bare, replace(worker, rank=each), strategy.autocast) for each in range(ranks)
        ]
        with mode, explained():
            given = tuple(mode.from_tensor(column) for column in batch)
            passed = _passed(task, everyone, given)
            line = everyone[rank].line
            stages = [(stage, passed[number]) for number, stage in line.stages.items()]
            optimizer = optimizer_of(task, everyone[rank], worker.training, gpu)
            make = partial(Staged, task, strategy, everyone[rank], optimizer, gpu)
            with chosen(training, gpu), Ledger(mode).kept() as ledger:
                course = make(stages=stages, judges=line.is_last).run(ledger, given)
        waiting = round((under_way(training, ranks, rank) - 1) * course.activations)
        found.append(replace(course, peak=course.peak + waiting))
    return max(found, key=lambda course: course.peak)


def under_way(training: Training, ranks: int, rank: int) -> float:
    """Of how many micro-batches a rank keeps activations at once, at most."""
    number = training.accumulate
    match training.pipeline_schedule:
        case "gpipe":
            return number
        case "1f1b":
            return min(number, ranks - rank)
    # Each of a rank's two stages has half of its activations.
    return min(2 * number, 2 * (ranks - rank - 1) + ranks + 1) / 2


def _passed(task: "Task", parts: Sequence[Part], batch: Batch) -> list[Tensor]:
    """What goes into each stage."""
    try:
        task.compute_losses(Probe(), batch)
    except Asked as asked:
        passed = [asked.values]
    else:
        raise ValueError("pipeline: the task did not call the model; let it, once a batch")
    stages = {number: stage for part in parts for number, stage in part.line.stages.items()}
    with torch.no_grad():
        for number in range(len(stages) - 1):
            passed.append(stages[number](passed[-1]))
    return passed
