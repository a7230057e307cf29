"""If these fail, people train with batches that waste samples, or time."""

import pytest
import torch
from torch import Tensor, nn

from trainables.monitoring.noise_scale import Noise, Norms, measure

SMALL, RANKS, INPUTS, SPREAD = 8, 4, 6, 0.7


def squared(model: nn.Linear, x_BD: Tensor, y_B: Tensor) -> tuple[Tensor, float]:
    """Return the gradient of the mean loss, and its squared norm."""
    model.zero_grad()
    ((model(x_BD).squeeze(1) - y_B).square().mean() / 2).backward()
    return model.weight.grad.clone(), model.weight.grad.square().sum().item()


def test_a_linear_models_noise_scale_is_found():
    """y = w.x + e, x and e normal: tr(Sigma) = (D + 1) |w - v|^2 + D SPREAD^2, G = v - w at v."""
    torch.manual_seed(0)
    model = nn.Linear(INPUTS, 1, bias=False).double()
    truth_D = torch.linspace(-1, 1, INPUTS).double()
    gap = (model.weight.detach().squeeze(0) - truth_D).square().sum().item()
    exact = ((INPUTS + 1) * gap + INPUTS * SPREAD**2) / gap
    noise = Noise(decay=0.998)
    for _ in range(1500):
        x_BD = torch.randn(RANKS * SMALL, INPUTS).double()
        y_B = x_BD @ truth_D + SPREAD * torch.randn(RANKS * SMALL).double()
        parts = zip(x_BD.split(SMALL), y_B.split(SMALL), strict=True)
        own = [squared(model, x, y)[1] for x, y in parts]
        large_squared = squared(model, x_BD, y_B)[1]
        noise = noise.after(Norms(SMALL, RANKS * SMALL, sum(own) / RANKS, large_squared))
    # Some 900 estimates count, each of which spreads by about once its mean.
    assert noise.scale == pytest.approx(exact, rel=0.15)
    started = 1 - 0.998**1500
    assert noise.squared / started == pytest.approx(gap, rel=0.15)


def test_the_noise_of_a_model_is_measured_on_demand():
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
    assert model.weight.grad is None
    with pytest.raises(ValueError, match=r"2 batches of \[1, 3\] samples"):
        measure(model, loss, [torch.arange(3), torch.arange(1)])


def test_both_estimates_are_exact_where_norms_are_their_expectations():
    signal, trace = 2.0, 30.0  # E|G_B|^2 = |G|^2 + tr(Sigma) / B, equation A.1
    norms = Norms(4, 64, signal + trace / 4, signal + trace / 64)
    assert (norms.squared, norms.trace) == (pytest.approx(signal), pytest.approx(trace))
    assert Noise().after(norms).scale == pytest.approx(trace / signal)


def test_nothing_is_said_of_noise_before_there_is_an_estimate():
    assert Noise().scale is None


def test_nothing_is_said_of_noise_that_hides_the_gradient():
    assert Noise().after(Norms(1, 2, small_squared=9.0, large_squared=1.0)).scale is None


def test_a_large_batch_that_is_not_larger_is_refused():
    with pytest.raises(ValueError, match="batches of 8 and 8 samples"):
        Norms(8, 8, 1.0, 1.0)


def test_an_average_that_forgets_nothing_is_refused():
    with pytest.raises(ValueError, match="decay is 1"):
        Noise(decay=1)
