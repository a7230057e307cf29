"""The loss around a model's weights, on a plane through them.

Source: Li, Xu, Taylor, Studer & Goldstein, Visualizing the Loss Landscape of Neural Nets (2018),
section 4: random directions, each filter of which is scaled to the norm of the model's filter, so
that flat and sharp mean the same in models whose weights have other scales. Vectors (biases,
norms) stay where they are, as in the paper's experiments.

Axes: P points a side, F filters of a weight.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

Moves = list[tuple[Tensor, Tensor]]  # of each weight, along both directions


@torch.no_grad()
def landscape(
    model: nn.Module, loss: Callable[[], Tensor], points: int, radius: float, seed: int
) -> Tensor:
    """Losses at (i, j): `loss()` with the weights moved by steps i and j along two directions.

    Steps go evenly from -radius to radius; 1 is as far as each filter's own norm. The weights and
    buffers are back bit by bit afterwards, whatever happens. Ranks that share a model must all
    call it, with one seed. Put the model into the mode in which it is to be seen (mostly `eval`).

    Returns:
        losses_PP in double precision, on the CPU; the middle is the model itself if P is odd.
    """
    if points < 2 or radius <= 0:
        raise ValueError(
            f"landscape: {points} points, radius {radius}; give 2 points or more, a radius above 0"
        )
    _reshard(model)
    steps = torch.linspace(-radius, radius, points, dtype=torch.float64).tolist()
    weights = [weight for weight in model.parameters() if weight.ndim > 1]
    generator = torch.Generator().manual_seed(seed)
    # One after the other, so that a direction does not depend on the other one.
    first = [direction(weight, generator) for weight in weights]
    second = [direction(weight, generator) for weight in weights]
    losses: list[Tensor] = []
    with restored(model):
        origins = [weight.detach().clone() for weight in weights]
        for i in steps:
            for j in steps:
                moves = zip(weights, origins, first, second, strict=True)
                for weight, origin, one, other in moves:
                    weight.copy_(origin + i * one + j * other)
                losses.append(loss().detach().double())
                _reshard(model)
    return torch.stack(losses).reshape(points, points).cpu()


def direction(weight: Tensor, generator: torch.Generator) -> Tensor:
    """A random direction, each filter as long as the weight's; the same on all ranks."""
    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
    # Drawn on the CPU: other devices would give other directions.
    draw = torch.randn(whole.shape, generator=generator).to(whole.detach())
    across = tuple(range(1, whole.ndim))
    size, own = (torch.linalg.vector_norm(x, dim=across, keepdim=True) for x in (whole, draw))
    return _spread(draw * (size / own), weight)


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Within it, weights and buffers may change; afterwards they are what they were."""
    tensors = [*model.parameters(), *model.buffers()]
    kept = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        _reshard(model)
        with torch.no_grad():
            for tensor, copy in zip(tensors, kept, strict=True):
                tensor.copy_(copy)


def _reshard(model: nn.Module) -> None:
    """Let go of gathered weights: without a backward pass, fully_shard's root keeps its own.

    It would go on with those, whatever becomes of the shards (torch 2.13).
    """
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


def _spread(whole: Tensor, like: Tensor) -> Tensor:
    if not isinstance(like, DTensor):
        return whole
    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None)
