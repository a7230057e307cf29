"""If these fail, the picture of the loss is wrong, or worse, drawing it has changed the model."""

import pytest
import torch
from torch import nn

from trainables.monitoring.landscape import landscape


def bowl(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the surface of half the squared distance from the weights, and their squared norm."""
    torch.manual_seed(3)
    model = nn.Conv2d(3, 5, 2)
    origin = model.weight.detach().clone()
    losses_PP = landscape(
        model, lambda: (model.weight - origin).square().sum() / 2, points=5, radius=2.0, seed=seed
    )
    return losses_PP, origin.double().square().sum()


def test_around_the_middle_of_a_bowl_the_surface_is_that_bowl():
    """A step of 1 along a direction is as long as the weights: filter by filter, so in all."""
    losses_PP, size = bowl()
    expected_P = torch.tensor([4.0, 1.0, 0.0, 1.0, 4.0]).double() * size / 2
    torch.testing.assert_close(losses_PP[:, 2], expected_P, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(losses_PP[2, :], expected_P, rtol=1e-5, atol=1e-8)
    # A quadratic form: along the diagonals it obeys the law of the parallelogram.
    across = losses_PP[0, 0] + losses_PP[0, 4]
    torch.testing.assert_close(across, 2 * (losses_PP[0, 2] + losses_PP[2, 0]), rtol=1e-5, atol=0)


def test_each_filter_moves_by_its_own_norm_and_vectors_stay():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    model[0].weight.data[1] *= 100
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    seen = []

    def loss():
        seen.append({name: value.detach().clone() for name, value in model.named_parameters()})
        return torch.zeros(())

    landscape(model, loss, points=3, radius=1.0, seed=0)
    first = seen[1]  # one step back along the first direction, none along the second
    moved_F = (first["0.weight"] - before["0.weight"]).norm(dim=1)
    torch.testing.assert_close(moved_F, before["0.weight"].norm(dim=1))
    for name in ("0.bias", "1.weight", "1.bias"):
        assert all(torch.equal(weights[name], before[name]) for weights in seen)


@pytest.mark.parametrize("fails", [True, False])
def test_weights_and_buffers_are_back_bit_by_bit_whatever_happens(fails):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))  # whose buffers follow each batch
    before = {name: value.clone() for name, value in model.state_dict().items()}
    calls = []

    def loss():
        calls.append(1)
        if fails and len(calls) == 5:
            raise MemoryError
        return model(torch.randn(8, 4)).square().sum()

    if fails:
        with pytest.raises(MemoryError):
            landscape(model, loss, points=4, radius=1.0, seed=0)
    else:
        landscape(model, loss, points=4, radius=1.0, seed=0)
    assert len(calls) == (5 if fails else 16)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
