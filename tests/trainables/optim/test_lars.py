import pytest
import torch
from torch import nn

from trainables.optim.lars import TRUST, Lars


def stepped(weight: torch.Tensor, gradient: torch.Tensor, **options: float) -> torch.Tensor:
    """Return how far a single step moves a weight."""
    parameter = nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    Lars([parameter], **{"lr": 0.5, "momentum": 0.9, "weight_decay": 0.0, **options}).step()
    return weight - parameter.detach()


def test_a_matrix_moves_by_a_share_of_its_own_length():
    weight, gradient = torch.full((2, 2), 3.0), torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert stepped(weight, gradient).norm().item() == pytest.approx(0.5 * TRUST * weight.norm())


def test_a_vector_takes_a_plain_step():
    weight, gradient = torch.ones(3), torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(stepped(weight, gradient, weight_decay=9.0), 0.5 * gradient)


def test_decay_pulls_a_matrix_towards_zero_even_without_gradient():
    weight = torch.ones(2, 2)
    moved = stepped(weight, torch.zeros(2, 2), weight_decay=0.1)
    torch.testing.assert_close(moved, 0.5 * TRUST * weight)


def test_momentum_is_kept_from_step_to_step():
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = Lars([parameter], lr=1.0, momentum=0.5, weight_decay=0.0)
    parameter.grad = torch.ones(1)
    optimizer.step()
    parameter.grad = torch.zeros(1)
    optimizer.step()
    assert parameter.item() == -1.5
