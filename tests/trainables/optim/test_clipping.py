"""If these fail, gradients are clipped to another bound than the spec's, or the report lies."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.optim.clipping import EPSILON, clip, total_norm

WAYS = ["norm", "value", "adaptive"]
SHAPES = [(4, 3), (4,), (2, 3, 2, 2), (2,), (3, 2), (3,)]


def weights(scale: float = 1.0, dtype=torch.float64) -> list[nn.Parameter]:
    """Return a model's parameters with gradients: two layers and a last one."""
    rng = torch.Generator().manual_seed(0)
    made = []
    for shape in SHAPES:
        weight = nn.Parameter(torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype))
        slope = torch.randn(shape, generator=rng, dtype=torch.float64)
        weight.grad = (scale * slope).to(dtype)
        made.append(weight)
    return made


def gradients(parameters: list[nn.Parameter]) -> list[torch.Tensor]:
    return [weight.grad.clone() for weight in parameters]


def whole(tensors: list[torch.Tensor]) -> float:
    return np.sqrt(sum(float((tensor.double() ** 2).sum()) for tensor in tensors))


@pytest.mark.parametrize("most", [0.1, 3.0, 1e3])
def test_by_norm_is_that_of_torch(most):
    ours, theirs = weights(), weights()
    expected = nn.utils.clip_grad_norm_(theirs, most)
    result = clip(ours, most, "norm", total_norm)
    assert torch.equal(result.norm, expected)
    assert all(map(torch.equal, gradients(ours), gradients(theirs)))
    assert result.clipped.item() == (1.0 if most < 1e3 else 0.0)


def test_by_value_is_that_of_torch_and_tells_the_share_of_elements():
    ours, theirs = weights(), weights()
    nn.utils.clip_grad_value_(theirs, 0.8)
    before = torch.cat([gradient.flatten() for gradient in gradients(ours)])
    result = clip(ours, 0.8, "value", total_norm)
    assert all(map(torch.equal, gradients(ours), gradients(theirs)))
    assert result.clipped.item() == (before.abs() > 0.8).double().mean().item()
    assert result.norm.item() == pytest.approx(before.norm().item())


def by_definition(weight: np.ndarray, gradient: np.ndarray, most: float):
    """Return equation 3 for each unit: the clipped gradient, and which units were clipped."""
    units = (weight, gradient) if weight.ndim > 1 else (weight[None], gradient[None])
    clipped, over = [], []
    for unit, slope in zip(*units, strict=True):
        length, steep = max(np.linalg.norm(unit), EPSILON), np.linalg.norm(slope)
        over.append(steep / length > most)
        clipped.append(most * length / steep * slope if over[-1] else slope)
    return np.array(clipped).reshape(gradient.shape), over


def test_adaptive_is_that_of_the_paper_for_each_unit_but_the_last_layers():
    parameters, before = weights(), weights()
    with torch.no_grad():
        parameters[0][1] = before[0][1] = 0.0  # a row of no length yet
    result = clip(parameters, 1.1, "adaptive", total_norm)
    units: list[bool] = []
    for ours, own in zip(parameters[:4], before[:4], strict=True):
        expected, over = by_definition(own.detach().numpy(), own.grad.numpy(), 1.1)
        np.testing.assert_allclose(ours.grad.numpy(), expected, rtol=1e-12)
        units += over
    assert 0 < sum(units) < len(units)
    assert result.clipped.item() == pytest.approx(np.mean(units))
    assert all(map(torch.equal, gradients(parameters[4:]), gradients(before[4:])))


@pytest.mark.parametrize("by", WAYS)
def test_gradients_of_half_precision_are_measured_in_float32(by):
    parameters = weights(scale=30.0, dtype=torch.bfloat16)
    expected = whole(gradients(parameters))
    result = clip(parameters, 0.5, by, total_norm)
    assert result.norm.dtype == result.clipped.dtype == torch.float32
    assert result.norm.item() == pytest.approx(expected, rel=1e-6)
    assert {weight.grad.dtype for weight in parameters} == {torch.bfloat16}
    assert result.clipped.item() > 0


class Unread(TorchDispatchMode):
    """A mode that fails if the host reads a value, for which it would wait for a GPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert "_local_scalar_dense" not in str(function)
        assert "nonzero" not in str(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("by", WAYS)
def test_clipping_reads_no_value_on_the_host(by):
    parameters = weights()
    with Unread():
        clip(parameters, 0.1, by, total_norm)
