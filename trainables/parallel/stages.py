"""The stages of a pipeline, which are runs of a model's layers, and the schedules that drive them.

Sources: GPipe, Huang et al. (2019); 1F1B, Narayanan et al., PipeDream-Flush (2021); interleaved
stages, Narayanan et al., Efficient Large-Scale Language Model Training (2021), section 2.2.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.pipelining.stage import _PipelineStageBase

from trainables.modules import evaluating
from trainables.training import PipelineSchedule
from trainables.worker import Worker

Autocast = Callable[[], AbstractContextManager[None]]
LossFunction = Callable[[Tensor, int], Tensor]  # the loss of an output, by its micro-batch's number

MOST_SHAPES = 4  # cached schedules: training and validation, and the last batch of each
INTERLEAVED = 2  # stages on each rank


class StageModule(nn.Sequential):
    """The layers of this rank, under their names in the complete model."""

    def __init__(self, layers: Sequence[tuple[str, nn.Module]], line: "RankStages") -> None:
        super().__init__(OrderedDict(layers))
        self.line = line


class Stage(nn.Module):
    """A run of consecutive layers, computing in the training's number format."""

    def __init__(self, layers: nn.Sequential, autocast: Autocast) -> None:
        super().__init__()
        self.layers, self.autocast = layers, autocast

    def forward(self, values: Tensor) -> Tensor:
        with self.autocast():
            output = self.layers(values)
        if not isinstance(output, Tensor):
            raise TypeError(
                f"pipeline: the stage that ends with layer {next(reversed(self.layers._modules))} "
                f"gives {type(output).__name__}; let each layer of the model give one tensor"
            )
        return output


@dataclass
class Loss:
    """The loss function of the last stage; a schedule keeps it, and each update sets `judge`."""

    judge: LossFunction | None = None

    def __call__(self, output: Tensor, number: Tensor) -> Tensor:
        assert self.judge is not None
        return self.judge(output, int(number))


@dataclass(frozen=True)
class ScheduleKey:
    """The key of a schedule: everything else is equal for a model."""

    training: bool
    parts: int  # micro-batches
    size: int  # samples in each


@dataclass(frozen=True)
class CachedSchedule:
    """A schedule, the loss that it calls and the input shape that it expects."""

    schedule: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
    loss: Loss
    taken: torch.Size  # the shape of a micro-batch's input


@dataclass
class RankStages:
    """This rank's stages of a pipeline."""

    stages: dict[int, Stage]  # by their number in the pipeline
    count: int  # of stages, over all ranks
    schedule: PipelineSchedule
    device: torch.device
    runs: dict[ScheduleKey, CachedSchedule] = field(default_factory=dict)

    @property
    def is_first(self) -> bool:
        """Return whether this rank receives the samples."""
        return 0 in self.stages

    @property
    def is_last(self) -> bool:
        """Return whether this rank produces the outputs."""
        return self.count - 1 in self.stages

    def run(
        self, shape: ScheduleKey, inputs: Sequence[Tensor], judge: LossFunction | None
    ) -> Sequence[Tensor]:
        """Pass micro-batches through all stages; without a judge, return their outputs.

        Args:
            inputs: one tensor for each micro-batch, equally shaped; on the first rank alone.
            judge: computes losses; None runs forward passes only, and returns the outputs on the
                last rank.

        Raises:
            ValueError: samples have another shape than those before.
        """
        run = self.runs.get(shape) or self._build_run(shape, inputs)
        for values in inputs:
            if values.shape != run.taken:
                raise ValueError(
                    f"pipeline: the model got an input of shape {tuple(values.shape)}, after one "
                    f"of {tuple(run.taken)}; pad all samples to one length in load_data"
                )
        batch = [torch.cat(list(inputs))] if inputs else []
        run.loss.judge = judge
        try:
            if judge is None:
                with torch.no_grad():
                    outputs = run.schedule.step(*batch)
                return [] if outputs is None else outputs.tensor_split(shape.parts)
            target = torch.arange(shape.parts) if self.is_last else None
            run.schedule.step(*batch, target=target, return_outputs=False)
            return []
        finally:
            run.loss.judge = None

    def _build_run(self, shape: ScheduleKey, inputs: Sequence[Tensor]) -> CachedSchedule:
        passed = self._infer_shapes(inputs[0] if inputs else None)
        stages: list[_PipelineStageBase] = [
            PipelineStage(
                stage,
                number,
                self.count,
                self.device,
                input_args=_example(passed[number], shape.training and number > 0),
                output_args=_example(passed[number + 1], shape.training),
            )
            for number, stage in self.stages.items()
        ]
        loss = Loss()
        loss_if_training = loss if shape.training else None
        schedule: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
        if self.schedule == "interleaved":
            schedule = ScheduleInterleaved1F1B(
                stages, shape.parts, loss_if_training, scale_grads=False
            )
        else:
            kind = ScheduleGPipe if self.schedule == "gpipe" else Schedule1F1B
            schedule = kind(stages[0], shape.parts, loss_if_training, scale_grads=False)
        if len(self.runs) == MOST_SHAPES:
            del self.runs[next(iter(self.runs))]
        self.runs[shape] = CachedSchedule(schedule, loss, passed[0].shape)
        return self.runs[shape]

    @torch.no_grad()
    def _infer_shapes(self, values: Tensor | None) -> list[Tensor]:
        """Return each stage's input, and the last one's output, as meta tensors; a collective.

        torch would infer the shapes in training mode, in which batch norms would count the inputs.
        """
        passed = [_broadcast_shape(values, 0)]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            for number in range(self.count):
                output = None
                if (stage := self.stages.get(number)) is not None:
                    with evaluating(stage):
                        output = stage(torch.zeros_like(passed[-1], device=self.device))
                passed.append(_broadcast_shape(output, number % dist.get_world_size()))
        return passed


def shard_layers(model: nn.Module, worker: Worker, autocast: Autocast) -> StageModule:
    """Return this rank's layers of a model.

    Raises:
        ValueError: the model cannot be divided among this many ranks.
    """
    schedule = worker.training.pipeline_schedule
    count = worker.world_size * (INTERLEAVED if schedule == "interleaved" else 1)
    layers = _named_layers(model)
    names = balance_stages(model, count)
    _check_ties(model, names)
    numbers = range(worker.rank, count, worker.world_size)
    runs = {number: [(name, layers[name]) for name in names[number]] for number in numbers}
    stages = {
        number: Stage(nn.Sequential(OrderedDict(run)), autocast) for number, run in runs.items()
    }
    line = RankStages(stages, count, schedule, worker.device)
    return StageModule([layer for run in runs.values() for layer in run], line)


def balance_stages(model: nn.Module, count: int) -> list[list[str]]:
    """Divide the layers into consecutive stages of similar size, and return their names.

    Raises:
        ValueError: there are fewer trained layers than stages.
    """
    groups: list[list[str]] = []  # all but the first begin with a trained layer
    sizes: list[int] = []
    trained = 0
    for name, layer in model.named_children():
        weights = list(layer.parameters())
        trains = any(weight.requires_grad for weight in weights)
        if not groups or (trains and trained):
            groups.append([])
            sizes.append(0)
        trained += trains
        groups[-1].append(name)
        sizes[-1] += sum(weight.numel() for weight in weights)
    if trained < count:
        raise ValueError(
            f"pipeline: {count} stages, but only {trained} of the model's layers have weights to "
            "train; give the nn.Sequential more and smaller layers, or take fewer workers"
        )
    starts = [0, *_balanced_cuts(sizes, count), len(groups)]
    return [
        [name for group in groups[start:end] for name in group] for start, end in pairwise(starts)
    ]


def _named_layers(model: nn.Module) -> dict[str, nn.Module]:
    layers = dict(model.named_children())
    plain = isinstance(model, nn.Sequential) and type(model).forward is nn.Sequential.forward
    if not plain:
        raise ValueError(
            f"pipeline: the model is a {type(model).__name__}, whose forward can be anything; let "
            "build_model return an nn.Sequential of its layers (embedding, blocks, head), each of "
            "which takes and gives one tensor"
        )
    if isinstance(model, nn.Sequential) and len(layers) < len(model):
        raise ValueError("pipeline: a layer stands in the model twice; give each its own weights")
    return layers


def _check_ties(model: nn.Module, names: Sequence[Sequence[str]]) -> None:
    stage_of = {name: number for number, run in enumerate(names) for name in run}
    owners: dict[int, str] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        first = owners.setdefault(id(weight), name)
        if stage_of[first.split(".")[0]] != stage_of[name.split(".")[0]]:
            raise ValueError(
                f"pipeline: {first} and {name} are one weight, in layers of two stages; give each "
                "its own"
            )


def _balanced_cuts(sizes: Sequence[int], count: int) -> list[int]:
    """Return where to cut, so that the largest of `count` runs is minimal and none is empty."""
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    # best[end]: the smallest possible largest run of sizes[:end], and its cuts.
    best: dict[int, tuple[int, list[int]]] = {
        end: (sums[end], []) for end in range(1, len(sizes) + 1)
    }
    for parts in range(2, count + 1):
        best = {
            end: min(
                (max(best[at][0], sums[end] - sums[at]), [*best[at][1], at])
                for at in range(parts - 1, end)
            )
            for end in range(parts, len(sizes) + 1)
        }
    return best[len(sizes)][1]


def _example(passed: Tensor, learns: bool) -> Tensor:
    return passed.detach().requires_grad_(learns and passed.is_floating_point())


def _broadcast_shape(values: Tensor | None, source: int) -> Tensor:
    """Send a tensor's shape and format from the rank that has it; return a meta tensor."""
    message = [None if values is None else (values.shape, values.dtype)]
    dist.broadcast_object_list(message, src=source)
    shape, dtype = message[0] or (torch.Size(), torch.float32)
    return torch.empty(shape, dtype=dtype, device="meta")
