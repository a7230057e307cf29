"""If these fail, LAMB is not the published one, and large batches train otherwise than it says."""

import numpy as np
import pytest
import torch
from torch import nn

from trainables.optim.lamb import BETAS, EPSILON, Lamb

LR, DECAY = 0.05, 0.1


def by_definition(weight, gradients, adapts: bool):
    """Run Algorithm 2 of the paper, line by line, in float64."""
    mean, square = np.zeros_like(weight), np.zeros_like(weight)
    for count, gradient in enumerate(gradients, 1):
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * square + (1 - BETAS[1]) * gradient**2
        unbiased = mean / (1 - BETAS[0] ** count)
        ratio = unbiased / (np.sqrt(square / (1 - BETAS[1] ** count)) + EPSILON)
        move = ratio + DECAY * weight
        trust = np.linalg.norm(weight) / np.linalg.norm(move) if adapts else 1.0
        weight = weight - LR * trust * move
    return weight


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2, 2), (5,)])
def test_three_steps_are_those_of_the_paper(shape):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), rng.normal(size=(3, *shape))
    parameter = nn.Parameter(torch.tensor(start))
    optimizer = Lamb([parameter], LR, DECAY)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    expected = by_definition(start, gradients, adapts=len(shape) > 1)
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)
