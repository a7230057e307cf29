"""Clip gradients by their total norm, by value, or unit by unit, and say how much was clipped.

Sources: norm and value, Pascanu, Mikolov & Bengio, On the Difficulty of Training Recurrent Neural
Networks (2013), Algorithm 1; adaptive, Brock et al., High-Performance Large-Scale Image
Recognition Without Normalization (2021), equation 3. Nothing here waits for the device.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from trainables.optim.norms import (
    Splits,
    anywhere,
    by_rows,
    lengths,
    part,
    settle,
    summed,
    sums,
    within_rows,
)

By = Literal["norm", "value", "adaptive"]
EPSILON = 1e-3  # adaptive: the least norm that a unit of weights counts with, so 0 can be left


class Clipped(NamedTuple):
    """What clipping found and did; both 0-d, on the gradients' device."""

    norm: Tensor  # of the whole gradient, before
    clipped: Tensor  # by norm: 1 or 0; by value: the share of elements; adaptive: of units


@torch.no_grad()
def clip(
    parameters: Sequence[Parameter],
    most: float,
    by: By,
    norm: Callable[[Sequence[Tensor]], Tensor],
) -> Clipped:
    """Clip the gradients of parameters in place.

    Shares are those of the given parameters; adaptive leaves the last layer alone, as the paper
    does: the last parameter of several dimensions and what comes after it.

    Args:
        most: the largest total norm; absolute value; or ratio of a unit's norm to its weights'.
        norm: gives the total norm of these gradients and of those that only other ranks have.
    """
    trained = [weight for weight in parameters if weight.grad is not None]
    gradients = [settle(weight) for weight in trained]
    total = norm(gradients)
    match by:
        case "norm":
            return by_norm(gradients, total, most)
        case "value":
            clipped = _by_value(gradients, total, most)
        case "adaptive":
            clipped = _by_unit(_before_last_layer(trained, parameters), total, most)
    return Clipped(total, clipped.to(total))


@torch.no_grad()
def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together, 0-d and plain; DTensors may be among them."""
    if not gradients:
        return torch.tensor(0.0)
    wholes = [summed(gradient) for gradient in gradients]
    found = lengths([part(whole) for whole in wholes], wholes)
    together: Tensor = torch.linalg.vector_norm(
        torch.stack([each.to(found[0].device) for each in found])
    )
    return together


def by_norm(gradients: Sequence[Tensor], total: Tensor, most: float) -> Clipped:
    """Scale gradients, whose total norm is known, down to one of `most`."""
    # As torch's clip_grad_norm_, for equal results; the small number saves a division by 0.
    ratio = (most / (total + 1e-6)).clamp(max=1.0)
    if gradients:
        torch._foreach_mul_([part(gradient) for gradient in gradients], ratio)
    return Clipped(total, (total > most).to(total))


def _by_value(gradients: Sequence[Tensor], total: Tensor, most: float) -> Tensor:
    """Clip each element to [-most, most]; returns the share that was outside."""
    parts = [part(gradient) for gradient in gradients]
    counts = sums([_count(each.abs() > most) for each in parts], gradients, anywhere)
    for each in parts:
        each.clamp_(-most, most)
    return _share(counts, sum(gradient.numel() for gradient in gradients), total)


def _by_unit(weights: Sequence[Parameter], total: Tensor, most: float) -> Tensor:
    """Clip each row of a matrix, and each vector whole; returns the share that was clipped."""
    matrices = [weight for weight in weights if weight.ndim > 1]
    vectors = [weight for weight in weights if weight.ndim <= 1]
    rows = sums(_limit(matrices, most, within_rows), matrices, by_rows)
    counts = [*rows, *_limit(vectors, most, anywhere)]
    return _share(counts, sum(len(weight) for weight in matrices) + len(vectors), total)


def _limit(weights: Sequence[Parameter], most: float, splits: Splits) -> list[Tensor]:
    """Scale units down to `most` times their weights' norms; counts of those on this rank."""
    slopes = [part(settle(weight)) for weight in weights]
    steep = _units(slopes, weights, splits)
    limits = [
        most * length.clamp(min=EPSILON)
        for length in _units([part(weight) for weight in weights], weights, splits)
    ]
    for slope, norm, limit in zip(slopes, steep, limits, strict=True):
        slope.mul_((limit / norm).clamp(max=1.0))
    return [_count(norm > limit) for norm, limit in zip(steep, limits, strict=True)]


def _units(parts: Sequence[Tensor], wholes: Sequence[Tensor], splits: Splits) -> list[Tensor]:
    """Norms of rows (of a vector: of it all), in float32 or finer, to be multiplied with parts."""
    squares = [
        torch.linalg.vector_norm(
            each,
            dim=tuple(range(1, each.ndim)) or None,
            keepdim=True,
            dtype=torch.promote_types(each.dtype, torch.float32),
        ).square()
        for each in parts
    ]
    return [square.sqrt() for square in sums(squares, wholes, splits)]


def _before_last_layer(
    trained: Sequence[Parameter], parameters: Sequence[Parameter]
) -> list[Parameter]:
    """Without the last of the parameters that has several dimensions, and all after it."""
    last = max((at for at, each in enumerate(parameters) if each.ndim > 1), default=0)
    before = {id(each) for each in parameters[:last]}
    return [weight for weight in trained if id(weight) in before]


def _count(mask: Tensor) -> Tensor:
    return mask.sum(dtype=torch.float64)


def _share(counts: Sequence[Tensor], of: int, total: Tensor) -> Tensor:
    # The 0 is made on the device: one from the host would be waited for.
    return torch.stack([total.new_zeros((), dtype=torch.float64), *counts]).sum() / max(of, 1)
