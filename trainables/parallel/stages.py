"""The stages of a pipeline: runs of a model's layers, and the schedules that drive them.

Sources: GPipe, Huang et al. (2019); 1F1B, Narayanan et al., PipeDream-Flush (2021); interleaved
stages, Narayanan et al., Efficient Large-Scale Language Model Training (2021), section 2.2.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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

from trainables.training import PipelineSchedule
from trainables.worker import Worker

Autocast = Callable[[], AbstractContextManager[None]]
Judge = Callable[[Tensor, int], Tensor]  # the loss of an output, by its micro-batch's number

MOST_SHAPES = 4  # schedules that are kept: training and validation, their last batches
INTERLEAVED = 2  # stages of a rank


class Part(nn.Sequential):
    """The layers of this rank, under the names that they have in the whole model."""

    def __init__(self, layers: Sequence[tuple[str, nn.Module]], line: "Line") -> None:
        super().__init__(OrderedDict(layers))
        self.line = line


class Stage(nn.Module):
    """A run of layers that computes in the training's number format."""

    def __init__(self, layers: nn.Sequential, autocast: Autocast) -> None:
        super().__init__()
        self.layers, self.autocast = layers, autocast

    def forward(self, values: Tensor) -> Tensor:
        with self.autocast():
            found = self.layers(values)
        if not isinstance(found, Tensor):
            raise TypeError(
                f"pipeline: the stage that ends with layer {next(reversed(self.layers._modules))} "
                f"gives {type(found).__name__}; let each layer of the model give one tensor"
            )
        return found


@dataclass
class Loss:
    """What the last stage calls: a schedule keeps its loss for good, updates bring their own."""

    judge: Judge | None = None

    def __call__(self, output: Tensor, number: Tensor) -> Tensor:
        assert self.judge is not None
        return self.judge(output, int(number))


@dataclass(frozen=True)
class Shape:
    """What tells schedules apart: all the rest is equal for a model."""

    training: bool
    parts: int  # micro-batches
    size: int  # samples of each


@dataclass(frozen=True)
class Run:
    """A schedule, and what it was made for."""

    schedule: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
    loss: Loss
    taken: torch.Size  # the shape of a micro-batch's input


@dataclass
class Line:
    """This rank's stages of a pipeline."""

    stages: dict[int, Stage]  # by their number in the whole
    count: int  # of stages, over all ranks
    schedule: PipelineSchedule
    device: torch.device
    runs: dict[Shape, Run] = field(default_factory=dict)

    @property
    def is_first(self) -> bool:
        """Whether this rank takes the samples."""
        return 0 in self.stages

    @property
    def is_last(self) -> bool:
        """Whether this rank gives the outputs."""
        return self.count - 1 in self.stages

    def run(self, shape: Shape, inputs: Sequence[Tensor], judge: Judge | None) -> Sequence[Tensor]:
        """Pass micro-batches through all stages; without a judge, returns what comes out.

        Args:
            inputs: of each micro-batch, equally shaped; on the first rank alone.
            judge: None: forward passes only; the outputs come back on the last rank.

        Raises:
            ValueError: samples of another shape than those before.
        """
        run = self.runs.get(shape) or self._make(shape, inputs)
        for values in inputs:
            if values.shape != run.taken:
                raise ValueError(
                    f"pipeline: the model got an input of shape {tuple(values.shape)}, after one "
                    f"of {tuple(run.taken)}; pad all samples to one length in load_data"
                )
        given = [torch.cat(list(inputs))] if inputs else []
        run.loss.judge = judge
        try:
            if judge is None:
                with torch.no_grad():
                    found = run.schedule.step(*given)
                return [] if found is None else found.tensor_split(shape.parts)
            target = torch.arange(shape.parts) if self.is_last else None
            run.schedule.step(*given, target=target, return_outputs=False)
            return []
        finally:
            run.loss.judge = None

    def _make(self, shape: Shape, inputs: Sequence[Tensor]) -> Run:
        passed = self._shapes(inputs[0] if inputs else None)
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
        own = loss if shape.training else None
        made: ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B
        if self.schedule == "interleaved":
            made = ScheduleInterleaved1F1B(stages, shape.parts, own, scale_grads=False)
        else:
            kind = ScheduleGPipe if self.schedule == "gpipe" else Schedule1F1B
            made = kind(stages[0], shape.parts, own, scale_grads=False)
        if len(self.runs) == MOST_SHAPES:
            del self.runs[next(iter(self.runs))]
        self.runs[shape] = Run(made, loss, passed[0].shape)
        return self.runs[shape]

    @torch.no_grad()
    def _shapes(self, values: Tensor | None) -> list[Tensor]:
        """What goes into each stage, and out of the last, without contents; all ranks take part.

        torch would find it out in training mode, and batch norm would remember what it saw.
        """
        passed = [_share(values, 0)]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            for number in range(self.count):
                found = None
                if (stage := self.stages.get(number)) is not None:
                    with _evaluating(stage):
                        found = stage(torch.zeros_like(passed[-1], device=self.device))
                passed.append(_share(found, number % dist.get_world_size()))
        return passed


def divide(model: nn.Module, worker: Worker, autocast: Autocast) -> Part:
    """This rank's layers of a model.

    Raises:
        ValueError: the model cannot be divided among so many ranks.
    """
    schedule = worker.training.pipeline_schedule
    count = worker.world_size * (INTERLEAVED if schedule == "interleaved" else 1)
    layers = _layers(model)
    names = cut(model, count)
    _check_ties(model, names)
    own = range(worker.rank, count, worker.world_size)
    runs = {number: [(name, layers[name]) for name in names[number]] for number in own}
    stages = {
        number: Stage(nn.Sequential(OrderedDict(run)), autocast) for number, run in runs.items()
    }
    line = Line(stages, count, schedule, worker.device)
    return Part([layer for run in runs.values() for layer in run], line)


def cut(model: nn.Module, count: int) -> list[list[str]]:
    """The names of the layers of each stage: runs that follow one another, of like size.

    Raises:
        ValueError: there are fewer layers that are trained than stages.
    """
    groups: list[list[str]] = []  # each begins with a layer that is trained, but for the first
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
    starts = [0, *_cuts(sizes, count), len(groups)]
    return [
        [name for group in groups[start:end] for name in group] for start, end in pairwise(starts)
    ]


def _layers(model: nn.Module) -> dict[str, nn.Module]:
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


def _cuts(sizes: Sequence[int], count: int) -> list[int]:
    """Where to cut, so that the largest of `count` runs is as small as can be; none is empty."""
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    # best[end]: the least largest run of sizes[:end], and its cuts.
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


def _share(values: Tensor | None, source: int) -> Tensor:
    """A tensor's shape and format, from the rank that has it; on the meta device."""
    box = [None if values is None else (values.shape, values.dtype)]
    dist.broadcast_object_list(box, src=source)
    shape, dtype = box[0] or (torch.Size(), torch.float32)
    return torch.empty(shape, dtype=dtype, device="meta")


@contextmanager
def _evaluating(stage: Stage) -> Iterator[None]:
    training = {module: module.training for module in stage.modules()}
    stage.eval()
    try:
        yield
    finally:
        for module, was in training.items():
            module.training = was
