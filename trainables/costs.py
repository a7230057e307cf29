"""Costs of a model, for a Task's `measure`: parameters, operations, and latency of a sample.

Axes: B samples. Models are called unchanged: in their current mode, on their current device.
"""

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainables.monitoring.flops import count_flops

Inputs = Tensor | Sequence[Tensor]  # the arguments of a model, each of B samples


def parameters(model: nn.Module) -> int:
    """Count a model's parameters, trained and frozen; tied ones once."""
    return sum(weight.numel() for weight in model.parameters())


@torch.no_grad()
def flops(model: nn.Module, inputs: Inputs) -> float:
    """Count the floating-point operations of a forward pass per sample: the mean over the inputs.

    Matrix products, convolutions and attention count, a multiplication and an addition as two;
    sums and activations do not. The first count in a process takes seconds.
    """
    columns = _columns(inputs)
    with count_flops() as count:
        model(*columns)
    return count.model / len(columns[0])


@torch.no_grad()
def latency_ms(model: nn.Module, inputs: Inputs, repeats: int = 30, warm_up: int = 5) -> float:
    """Return the milliseconds of a forward pass of the first sample: the median of repeated passes.

    The latency is this machine's, at this moment: compare only runs on machines of one kind, with
    no other load. GPUs are synchronized before and after each pass.

    Args:
        repeats: timed passes.
        warm_up: passes before the timed ones, to load kernels and fill caches.
    """
    if repeats < 1 or warm_up < 0:
        raise ValueError(
            f"latency_ms: repeats is {repeats}, warm_up {warm_up}; give repeats of 1 or more, and "
            "warm_up of 0 or more"
        )
    first = [column[:1] for column in _columns(inputs)]
    for _ in range(warm_up):
        model(*first)
    return statistics.median(_seconds(model, first) for _ in range(repeats)) * 1e3


def _seconds(model: nn.Module, columns: Sequence[Tensor]) -> float:
    """Return the seconds of one call, until its results are available."""
    _wait(columns)
    started = time.perf_counter()
    model(*columns)
    _wait(columns)
    return time.perf_counter() - started


def _wait(columns: Sequence[Tensor]) -> None:
    if columns[0].is_cuda:
        torch.cuda.synchronize(columns[0].device)


def _columns(inputs: Inputs) -> Sequence[Tensor]:
    columns = [inputs] if isinstance(inputs, Tensor) else inputs
    if not columns or not len(columns[0]):
        raise ValueError("costs: there is no sample in the inputs; give 1 or more")
    return columns
