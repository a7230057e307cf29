"""If these fail, people train with batches that waste samples, or time."""

import pytest
import torch
from torch import Tensor, nn

from trainables.monitoring.noise_scale import noise_scale

SMALL, INPUTS, SPREAD = 8, 6, 0.7


def test_a_linear_models_noise_scale_is_found():
    """y = w.x + e, x and e normal: tr(Sigma) = (D + 1) |w - v|^2 + D SPREAD^2, G = v - w at v."""
    torch.manual_seed(0)
    model = nn.Linear(INPUTS, 1, bias=False).double()
    truth_D = torch.linspace(-1, 1, INPUTS).double()
    gap = (model.weight.detach().squeeze(0) - truth_D).square().sum().item()
    x_ND = torch.randn(16_000, INPUTS).double()
    y_N = x_ND @ truth_D + SPREAD * torch.randn(len(x_ND)).double()

    def loss(at_B: Tensor) -> Tensor:
        return (model(x_ND[at_B]).squeeze(1) - y_N[at_B]).square().mean() / 2

    scale = noise_scale(model, loss, torch.arange(len(x_ND)).split(SMALL))
    exact = ((INPUTS + 1) * gap + INPUTS * SPREAD**2) / gap
    assert scale == pytest.approx(exact, rel=0.1)
    assert model.weight.grad is None
    with pytest.raises(ValueError, match=r"2 batches of \[1, 3\] samples"):
        noise_scale(model, loss, [torch.arange(3), torch.arange(1)])


@pytest.mark.parametrize(
    ("slopes", "scale"),
    [
        ([1.0, 3.0], 8 / 3),  # |G|^2 = (8 * 4 - 4 * 5) / 4, tr(Sigma) = (5 - 4) / (1 / 4 - 1 / 8)
        ([-1.0, 1.0], None),  # noise hides the gradient
    ],
)
def test_it_follows_from_the_gradients_of_two_batches(slopes, scale):
    model = nn.Linear(1, 1, bias=False)

    def loss(at_B: Tensor) -> Tensor:
        return model.weight.sum() * slopes[int(at_B[0]) // 4]

    expected = None if scale is None else pytest.approx(scale)
    assert noise_scale(model, loss, torch.arange(8).split(4)) == expected
