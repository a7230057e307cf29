"""If these fail, people train with batches that waste samples, or time."""

import pytest
import torch
from torch import Tensor, nn

from trainables.monitoring.noise_scale import Noise, measure

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

    noise = measure(model, loss, torch.arange(len(x_ND)).split(SMALL))
    exact = ((INPUTS + 1) * gap + INPUTS * SPREAD**2) / gap
    assert noise.scale == pytest.approx(exact, rel=0.1)
    assert noise.squared == pytest.approx(gap, rel=0.1)
    assert model.weight.grad is None
    with pytest.raises(ValueError, match=r"2 batches of \[1, 3\] samples"):
        measure(model, loss, [torch.arange(3), torch.arange(1)])


def test_both_estimates_are_exact_where_norms_are_their_expectations():
    signal, trace = 2.0, 30.0  # E|G_B|^2 = |G|^2 + tr(Sigma) / B, equation A.1
    noise = Noise(4, 64, signal + trace / 4, signal + trace / 64)
    assert (noise.squared, noise.trace) == (pytest.approx(signal), pytest.approx(trace))
    assert noise.scale == pytest.approx(trace / signal)


def test_nothing_is_said_of_noise_that_hides_the_gradient():
    assert Noise(1, 2, small_squared=9.0, large_squared=1.0).scale is None
