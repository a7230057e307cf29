"""What a task measures of its model besides losses: once an order, on rank 0, before it trains.

The other ranks go on, and wait for rank 0 where they first meet.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainables.data import Batch
from trainables.fitting import precision as formats
from trainables.fitting.passes import Passes
from trainables.metrics import checked
from trainables.parallel.strategies import Strategy
from trainables.randomness import derive, preserved, seed_all

if TYPE_CHECKING:
    from trainables.task import Task

SAMPLES = 2  # enough to tell what grows with them; more might not fit where batches are split
WHOLE = ("ddp", "zero1", "local_sgd")  # strategies whose ranks each have the whole model
RUNTIME = ("train/", "val/", "perf/", "gpu/", "grad_norm/", "update_ratio/")  # its own metrics


def measured(passes: Passes, strategy: Strategy) -> dict[str, float]:
    """What the task measures, checked; nothing on other ranks, and where it measures nothing.

    Raises:
        ValueError: a name or a value that cannot be reported.
    """
    task, worker = passes.task, strategy.worker
    if worker.rank != 0 or not _measures(task):
        return {}
    # Neither what is compiled can be counted, nor is it worth compiling twice.
    compiled = worker.training.compile != "none"
    eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
    with eager, preserved(), torch.no_grad():
        seed_all(derive(worker.seed, "model"))
        model, sample = _whole(passes, strategy)
        with _judged(model), formats.autocast(worker.training.precision, sample[0].device):
            found = task.measure(model, sample)
    return _checked(task, found)


def joined(
    metrics: Mapping[str, float], costs: Mapping[str, float], task: "Task"
) -> dict[str, float]:
    """A report's metrics with what was measured.

    Raises:
        ValueError: a name stands for both.
    """
    for name in costs.keys() & metrics.keys():
        raise _fault(task, f"{name!r} is reported by summarize as well; choose another name")
    return {**metrics, **costs}


def _measures(task: "Task") -> bool:
    """Whether a class below Task says what to measure."""
    return sum("measure" in vars(kind) for kind in type(task).__mro__) > 1


def _whole(passes: Passes, strategy: Strategy) -> tuple[nn.Module, Batch]:
    """The model that is trained, with samples; where ranks share it, one made anew on the CPU."""
    validation, training = passes.data.validation, strategy.worker.training
    at_B = torch.arange(min(SAMPLES, len(validation)), device=validation.home)
    sample = validation.batch(at_B)
    if strategy.worker.world_size == 1 or training.strategy in WHOLE:
        return passes.bare, sample
    model = passes.task.build_model().to("cpu", formats.stored(training.precision))
    return model, tuple(column.cpu() for column in sample)


@contextmanager
def _judged(model: nn.Module) -> Iterator[None]:
    """Within it the model is in eval mode; afterwards each module is in its own again."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _checked(task: "Task", found: object) -> dict[str, float]:
    values = checked(found, (), lambda message: _fault(task, message))
    for name, value in values.items():
        if name.startswith(RUNTIME):
            kind, own = name.partition("/")[0], name.rpartition("/")[2]
            raise _fault(task, f"{name!r}: {kind}/ is what the runtime reports; name it {own!r}")
        if not math.isfinite(value):
            raise _fault(task, f"{name!r} is {value}; give a finite number")
    return values


def _fault(task: "Task", message: str) -> ValueError:
    return ValueError(f"{type(task).__name__}.measure: {message}")
