"""Measurements that a task makes of its model besides losses: once an order, before training.

Rank 0 measures; the other ranks wait for it, and raise its error if it fails.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trainables.data import Batch
from trainables.metrics import NoNumber, checked
from trainables.modules import evaluating
from trainables.parallel.gathering import gather_results
from trainables.parallel.strategy import Strategy
from trainables.randomness import derive, preserved, seed_all
from trainables.task import Task
from trainables.trainer.forward_backward import ForwardBackward
from trainables.trainer.scoring import defines
from trainables.training_state import precision as formats

SAMPLES = 2  # enough to show what grows with samples; more might not fit if batches are split
RUNTIME = ("train/", "val/", "perf/", "gpu/", "grad_norm/", "update_ratio/")  # reserved prefixes


def measure_costs(passes: ForwardBackward, strategy: Strategy) -> dict[str, Any]:
    """Return the task's measurements; nothing on other ranks than 0, or if it makes none.

    Values that are no numbers are left out of reports, as those of `report` are.

    Raises:
        ValueError: the measurements are no mapping, or have a name of the runtime's.
    """
    if not defines(passes.task, "measure"):
        return {}
    worker = strategy.worker

    def measure() -> dict[str, Any]:
        return _run_measure(passes, strategy) if worker.rank == 0 else {}

    return measure() if worker.world_size == 1 else gather_results(measure)[worker.rank]


def _run_measure(passes: ForwardBackward, strategy: Strategy) -> dict[str, Any]:
    task, worker = passes.task, strategy.worker
    # Operations of a compiled model cannot be counted, and compiling twice is not worth it.
    with strategy.eager(), preserved(), torch.no_grad():
        seed_all(derive(worker.seed, "model"))
        model, sample = _complete_model(passes, strategy)
        with evaluating(model), formats.autocast(worker.training.precision, sample[0].device):
            values = task.measure(model, sample)
    return _checked(task, values)


def add_costs(metrics: Mapping[str, Any], costs: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return a report's metrics together with the measurements.

    Raises:
        ValueError: a name is among both.
    """
    for name in costs.keys() & metrics.keys():
        raise _fault(task, f"{name!r} is reported by summarize as well; choose another name")
    return {**metrics, **costs}


def _complete_model(passes: ForwardBackward, strategy: Strategy) -> tuple[nn.Module, Batch]:
    """Return the trained model and samples; if ranks share the model, a new one on the CPU."""
    validation, training = passes.data.validation, strategy.worker.training
    at_B = torch.arange(min(SAMPLES, len(validation)), device=validation.index_device)
    sample = validation.batch(at_B)
    if strategy.traits.whole_model:
        return passes.unwrapped_model, sample
    model = formats.convert(passes.task.build_model(), torch.device("cpu"), training.precision)
    return model, tuple(column.cpu() for column in sample)


def _checked(task: Task, found: object) -> dict[str, Any]:
    values, left_out = checked(found, (), lambda message: _fault(task, message))
    for name in [*values, *left_out]:
        if name.startswith(RUNTIME):
            prefix, short_name = name.partition("/")[0], name.rpartition("/")[2]
            raise _fault(
                task, f"{name!r}: {prefix}/ is what the runtime reports; name it {short_name!r}"
            )
    return {**values, **{name: NoNumber(found) for name, found in left_out.items()}}


def _fault(task: Task, message: str) -> ValueError:
    return ValueError(f"{type(task).__name__}.measure: {message}")
