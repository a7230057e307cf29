"""The loss on a plane through a model's weights.

Source: Li, Xu, Taylor, Studer & Goldstein, Visualizing the Loss Landscape of Neural Nets (2018),
section 4: random directions, each filter of which is scaled to the norm of the model's filter, so
that flatness and sharpness are comparable between models with weights of other scales. Vectors
(biases, norms) stay unchanged, as in the paper's experiments.

Axes: P points on each side, F filters of a weight.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from trainables.modules import reshard, restored


@torch.no_grad()
def landscape(
    model: nn.Module, loss: Callable[[], Tensor], points: int, radius: float, seed: int
) -> Tensor:
    """Return losses at (i, j): of the weights moved by steps i and j along two directions.

    Steps go evenly from -radius to radius; a step of 1 is as long as each filter's own norm.
    Weights and buffers are restored exactly afterwards, even after an error. Ranks that share a
    model must all call this, with one seed. Set the model's mode before (mostly `eval`).

    Returns:
        losses_PP in double precision, on the CPU; if P is odd, the middle is the unmoved model.
    """
    if points < 2 or radius <= 0:
        raise ValueError(
            f"landscape: {points} points, radius {radius}; give 2 points or more, a radius above 0"
        )
    reshard(model)
    steps = torch.linspace(-radius, radius, points, dtype=torch.float64).tolist()
    weights = [weight for weight in model.parameters() if weight.ndim > 1]
    generator = torch.Generator().manual_seed(seed)
    # Drawn one after the other, so that the first direction does not depend on the second.
    first = [direction(weight, generator) for weight in weights]
    second = [direction(weight, generator) for weight in weights]
    losses: list[Tensor] = []
    try:
        with restored([*model.parameters(), *model.buffers()]):
            origins = [weight.detach().clone() for weight in weights]
            for i in steps:
                for j in steps:
                    moves = zip(weights, origins, first, second, strict=True)
                    for weight, origin, along_first, along_second in moves:
                        weight.copy_(origin + i * along_first + j * along_second)
                    losses.append(loss().detach().double())
                    reshard(model)
    finally:
        reshard(model)
    return torch.stack(losses).reshape(points, points).cpu()


def direction(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random direction, each filter as long as the weight's; equal on all ranks."""
    full_weight = weight.full_tensor() if isinstance(weight, DTensor) else weight
    # Drawn on the CPU: other devices would give other directions.
    draw = torch.randn(full_weight.shape, generator=generator).to(full_weight.detach())
    across = tuple(range(1, full_weight.ndim))
    size, draw_size = (
        torch.linalg.vector_norm(x, dim=across, keepdim=True) for x in (full_weight, draw)
    )
    scaled: Tensor = draw * (size / draw_size)
    if not isinstance(weight, DTensor):
        return scaled
    return distribute_tensor(scaled, weight.device_mesh, weight.placements, src_data_rank=None)
