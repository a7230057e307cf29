"""Clipping of gradients by total norm, by value or by unit, with the share that was clipped.

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
    add_up_partials,
    is_sharded,
    local_part,
    sharded_gradient,
    shards_rows,
    shards_within_rows,
    sums,
    tensor_norms,
)

By = Literal["norm", "value", "adaptive"]
EPSILON = 1e-3  # adaptive: lower bound on the norm of a unit's weights, so that they can leave 0


class Clipped(NamedTuple):
    """The result of clipping; both tensors are 0-d, on the gradients' device."""

    norm: Tensor  # of the complete gradient, before clipping
    clipped: Tensor  # by norm: 1 or 0; by value: share of clipped elements; adaptive: of units


@torch.no_grad()
def clip(
    parameters: Sequence[Parameter],
    most: float,
    by: By,
    norm: Callable[[Sequence[Tensor]], Tensor],
) -> Clipped:
    """Clip the gradients of parameters in place.

    Clipped shares refer to the given parameters. Adaptive clipping leaves the last layer alone, as
    the paper does: the last parameter of several dimensions and all parameters after it.

    Args:
        most: the largest total norm, absolute value, or ratio of a unit's norm to its weights'.
        norm: returns the total norm of these gradients and of those on other ranks only.
    """
    trained = [weight for weight in parameters if weight.grad is not None]
    gradients = [sharded_gradient(weight) for weight in trained]
    total = norm(gradients)
    match by:
        case "norm":
            return by_norm(gradients, total, most)
        case "value":
            clipped = _by_value(gradients, total, most)
        case "adaptive":
            dimensions = [parameter.ndim for parameter in parameters]
            last = max((at for at, ndim in enumerate(dimensions) if ndim > 1), default=0)
            before = {id(parameter) for parameter in parameters[:last]}
            clipped = _by_unit([w for w in trained if id(w) in before], total, most)
    return Clipped(total, clipped.to(total))


@torch.no_grad()
def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients together, 0-d and plain; DTensors are allowed."""
    if not gradients:
        return torch.tensor(0.0)
    wholes = [add_up_partials(gradient) for gradient in gradients]
    norms = tensor_norms([local_part(tensor) for tensor in wholes], wholes)
    total: Tensor = torch.linalg.vector_norm(
        torch.stack([norm.to(norms[0].device) for norm in norms])
    )
    return total


def by_norm(gradients: Sequence[Tensor], total: Tensor, most: float) -> Clipped:
    """Scale gradients of known total norm down to a total norm of at most `most`."""
    # As in torch's clip_grad_norm_, for equal results; the small number avoids a division by 0.
    ratio = (most / (total + 1e-6)).clamp(max=1.0)
    if gradients:
        torch._foreach_mul_([local_part(gradient) for gradient in gradients], ratio)
    return Clipped(total, (total > most).to(total))


def _by_value(gradients: Sequence[Tensor], total: Tensor, most: float) -> Tensor:
    """Clip each element to [-most, most]; return the share of clipped elements."""
    parts = [local_part(gradient) for gradient in gradients]
    counts = sums([_count(shard.abs() > most) for shard in parts], gradients, is_sharded)
    for shard in parts:
        shard.clamp_(-most, most)
    return _clipped_share(counts, sum(gradient.numel() for gradient in gradients), total)


def _by_unit(weights: Sequence[Parameter], total: Tensor, most: float) -> Tensor:
    """Clip each row of a matrix, and each vector as one unit; return the share of clipped units."""
    matrices = [weight for weight in weights if weight.ndim > 1]
    vectors = [weight for weight in weights if weight.ndim <= 1]
    rows = sums(_scale_down_units(matrices, most, shards_within_rows), matrices, shards_rows)
    counts = [*rows, *_scale_down_units(vectors, most, is_sharded)]
    return _clipped_share(counts, sum(len(weight) for weight in matrices) + len(vectors), total)


def _scale_down_units(weights: Sequence[Parameter], most: float, splits: Splits) -> list[Tensor]:
    """Scale units down to `most` times their weights' norms; return the counts on this rank."""
    gradients = [local_part(sharded_gradient(weight)) for weight in weights]
    gradient_norms = _unit_norms(gradients, weights, splits)
    limits = [
        most * length.clamp(min=EPSILON)
        for length in _unit_norms([local_part(weight) for weight in weights], weights, splits)
    ]
    for gradient, norm, limit in zip(gradients, gradient_norms, limits, strict=True):
        gradient.mul_((limit / norm).clamp(max=1.0))
    return [_count(norm > limit) for norm, limit in zip(gradient_norms, limits, strict=True)]


def _unit_norms(parts: Sequence[Tensor], wholes: Sequence[Tensor], splits: Splits) -> list[Tensor]:
    """Return norms of rows (or of vectors) in float32 or finer, which broadcast with the parts."""
    squares = [
        torch.linalg.vector_norm(
            shard,
            dim=tuple(range(1, shard.ndim)) or None,
            keepdim=True,
            dtype=torch.promote_types(shard.dtype, torch.float32),
        ).square()
        for shard in parts
    ]
    return [square.sqrt() for square in sums(squares, wholes, splits)]


def _count(mask: Tensor) -> Tensor:
    return mask.sum(dtype=torch.float64)


def _clipped_share(counts: Sequence[Tensor], of: int, total: Tensor) -> Tensor:
    # The 0 is made on the device: the device would wait for a 0 from the host.
    return torch.stack([total.new_zeros((), dtype=torch.float64), *counts]).sum() / max(of, 1)
