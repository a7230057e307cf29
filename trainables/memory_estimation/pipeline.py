"""Memory of the fullest rank of a pipeline: its layers, and the micro-batches in flight.

Sources of how many are in flight: GPipe, Huang et al. (2019), section 2.3; 1F1B and interleaved
stages, Narayanan et al., Efficient Large-Scale Language Model Training (2021), section 2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from trainables.data import Batch
from trainables.memory_estimation.fake_step import (
    FakeStep,
    MemoryBreakdown,
    explain_errors,
    fake_rank,
    optimizer_of,
)
from trainables.memory_estimation.kernels import device_kernels
from trainables.memory_estimation.memory_tracker import MemoryTracker
from trainables.memory_estimation.meta_model import meta_model, to_fake
from trainables.parallel.microbatches import InputProbe, ModelCalled, OutputStub
from trainables.parallel.stages import Stage, StageModule, shard_layers
from trainables.parallel.strategies import Strategy
from trainables.training import Training

if TYPE_CHECKING:
    from trainables.task import Task


@dataclass
class FakePipelineStep(FakeStep):
    """A rank holding some of the layers."""

    stages: Sequence[tuple[Stage, Tensor]] = ()  # each with its input
    judges: bool = False  # whether the losses are computed from its last output

    def _outputs(self, batch: Batch) -> list[Tensor]:
        outputs = [
            stage(values.detach().requires_grad_(values.is_floating_point()))
            for stage, values in self.stages
        ]
        if self.judges:
            with self.strategy.autocast():
                outputs[-1] = self.task.compute_losses(OutputStub(outputs[-1]), batch)
        return outputs


def run_fake_pipeline_step(
    task: "Task", training: Training, ranks: int, batch: Batch, gpu: bool
) -> MemoryBreakdown:
    """Return the memory of the pipeline rank that needs the most; `batch` is a micro-batch.

    Raises:
        CannotForecast: the task reads values of tensors; the message says where.
        ValueError: the model cannot be divided into stages.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    courses = []
    for rank in range(ranks):
        worker = replace(fake_rank(training, ranks), rank=rank)
        strategy = Strategy(worker)
        model = to_fake(meta_model(task, worker.training), mode)
        ranks_models = [
            shard_layers(model, replace(worker, rank=peer), strategy.autocast)
            for peer in range(ranks)
        ]
        with mode, explain_errors():
            fake_batch = tuple(mode.from_tensor(column) for column in batch)
            stage_inputs = _stage_inputs(task, ranks_models, fake_batch)
            line = ranks_models[rank].line
            stages = [(stage, stage_inputs[number]) for number, stage in line.stages.items()]
            optimizer = optimizer_of(task, ranks_models[rank], worker.training, gpu)
            make = partial(FakePipelineStep, task, strategy, ranks_models[rank], optimizer, gpu)
            with device_kernels(training, gpu), MemoryTracker(mode).tracking() as tracker:
                course = make(stages=stages, judges=line.is_last).run(tracker, fake_batch)
        queued_bytes = round((in_flight(training, ranks, rank) - 1) * course.activations)
        courses.append(replace(course, peak=course.peak + queued_bytes))
    return max(courses, key=lambda course: course.peak)


def in_flight(training: Training, ranks: int, rank: int) -> float:
    """Return how many micro-batches, at most, a rank keeps activations of at once."""
    micro_batches = training.accumulate
    match training.pipeline_schedule:
        case "gpipe":
            return micro_batches
        case "1f1b":
            return min(micro_batches, ranks - rank)
    # Each of a rank's two stages holds half of its activations.
    return min(2 * micro_batches, 2 * (ranks - rank - 1) + ranks + 1) / 2


def _stage_inputs(task: "Task", parts: Sequence[StageModule], batch: Batch) -> list[Tensor]:
    """Compute the input of each stage."""
    try:
        task.compute_losses(InputProbe(), batch)
    except ModelCalled as asked:
        inputs = [asked.values]
    else:
        raise ValueError("pipeline: the task did not call the model; let it, once a batch")
    stages = {number: stage for part in parts for number, stage in part.line.stages.items()}
    with torch.no_grad():
        for number in range(len(stages) - 1):
            inputs.append(stages[number](inputs[-1]))
    return inputs
