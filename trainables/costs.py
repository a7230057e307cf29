"""What a model costs, for a Task's `measure`: parameters, operations, time of a sample.

Axes: B samples. A model is called as it is: in its mode, where its weights and the inputs are.
"""

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainables.watching.flops import counted

Inputs = Tensor | Sequence[Tensor]  # what a model is called with: B samples in each


def parameters(model: nn.Module) -> int:
    """The numbers in a model's weights, trained and frozen; those of tied weights once."""
    return sum(weight.numel() for weight in model.parameters())


@torch.no_grad()
def flops(model: nn.Module, inputs: Inputs) -> float:
    """Floating-point operations of a forward pass for one sample: the mean over those given.

    Products of matrices, convolutions and attention count, a product and an addition as two; sums
    and activations do not. The first count in a process takes seconds.
    """
    columns = _columns(inputs)
    with counted() as count:
        model(*columns)
    return count.model / len(columns[0])


@torch.no_grad()
def latency_ms(model: nn.Module, inputs: Inputs, repeats: int = 30, warm_up: int = 5) -> float:
    """Milliseconds of a forward pass of the first sample alone: the median of repeated ones.

    It is this machine's, at this moment: compare only what ran on machines of one kind, with
    nothing beside it. A GPU is waited for before and after each pass.

    Args:
        repeats: passes that are timed.
        warm_up: passes before them, which load kernels and fill caches.
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
    """How long one call takes, until its results are there."""
    _wait(columns)
    begun = time.perf_counter()
    model(*columns)
    _wait(columns)
    return time.perf_counter() - begun


def _wait(columns: Sequence[Tensor]) -> None:
    if columns[0].is_cuda:
        torch.cuda.synchronize(columns[0].device)


def _columns(inputs: Inputs) -> Sequence[Tensor]:
    columns = [inputs] if isinstance(inputs, Tensor) else inputs
    if not columns or not len(columns[0]):
        raise ValueError("costs: there is no sample in what the model is to be called with")
    return columns
