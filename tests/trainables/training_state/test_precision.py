"""Number formats. If these fail, a trial computes in another format than its spec says."""

import pytest
import torch
from torch import nn

from trainables.training_state import precision
from trainables.training_state.precision import Scaler, convert, keep_in_float32
from trainables.worker import Diverged

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "weights", "computed", "scaled"),
    [
        ("32-true", torch.float32, torch.float32, False),
        ("64-true", torch.float64, torch.float64, False),
        ("bf16-mixed", torch.float32, torch.bfloat16, False),
        ("16-mixed", torch.float32, torch.float16, True),
        ("bf16-true", torch.bfloat16, torch.bfloat16, False),
        ("16-true", torch.float16, torch.float16, False),
    ],
)
def test_each_precision_stores_computes_and_scales_as_named(name, weights, computed, scaled):
    assert precision.stored(name) == weights
    matrix = torch.ones(2, 2, dtype=weights)
    with precision.autocast(name, CPU):
        assert (matrix @ matrix).dtype == computed
    assert precision.scaler(name, CPU, lambda found: found).is_enabled() is scaled


def overflow(scaler: Scaler, optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> float:
    """Make an update whose gradient is infinite; return the resulting scale."""
    weight.grad = torch.full((1,), torch.inf)
    scaler.scale(torch.ones(1))
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale()


def test_a_scale_that_keeps_falling_ends_the_trial_as_diverged():
    weight = nn.Parameter(torch.ones(1))
    scaler = Scaler(CPU, True, lambda found: found)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    assert overflow(scaler, optimizer, weight) == 2.0**15
    while overflow(scaler, optimizer, weight) >= 1:
        scaler.check()
    with pytest.raises(Diverged, match="at any loss scale"):
        scaler.check()
    assert weight.item() == 1.0


def test_an_infinite_gradient_elsewhere_skips_the_step_here():
    weight = nn.Parameter(torch.ones(1))
    scaler = Scaler(CPU, True, lambda found: torch.ones_like(found))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(torch.ones(1))
    weight.grad = torch.ones(1)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 1.0
    assert scaler.get_scale() == 2.0**15


class Formats(nn.Module):
    """A model that records the format in which it computed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.seen = y.dtype
        return y


@pytest.mark.parametrize("name", ["bf16-mixed", "bf16-true"])
def test_chosen_modules_compute_in_float32_and_the_others_do_not(name):
    stored = precision.stored(name)
    model = convert(nn.Sequential(Formats(), Formats()), CPU, name)
    keep_in_float32(model, ["1"], stored)
    with precision.autocast(name, CPU):
        y = model(torch.ones(3, 2))
    assert (model[0].seen, model[1].seen) == (torch.bfloat16, torch.float32)
    assert y.dtype == stored
    y.sum().backward()
    assert model[1].linear.weight.grad.dtype == torch.float32


class Rotating(nn.Module):
    """A model with complex weights and a complex buffer, as in spectral convolutions and RoPE."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, dtype=torch.complex64))
        self.register_buffer("turn", torch.polar(torch.ones(3), torch.arange(3.0)))
        self.last = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last((x * self.weight * self.turn).real)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("32-true", torch.complex64),
        ("64-true", torch.complex128),
        ("bf16-mixed", torch.complex64),
        ("bf16-true", torch.complex64),
        ("16-true", torch.complex64),
    ],
)
@pytest.mark.filterwarnings("error")  # torch warns where it drops an imaginary part
def test_complex_numbers_stay_complex(name, kind):
    model = Rotating()
    expected = model(torch.ones(2, 3))
    model = convert(model, CPU, name)
    assert (model.weight.dtype, model.turn.dtype) == (kind, kind)
    with precision.autocast(name, CPU):
        y = model(torch.ones(2, 3, dtype=precision.of_samples(name)))
    torch.testing.assert_close(y.float(), expected, atol=0.05, rtol=0.0)


class Quantized(nn.Linear):
    """A layer as in models that transformers has quantized: it refuses to be cast as a whole."""

    def __init__(self) -> None:
        super().__init__(2, 2, bias=False)
        packed = torch.arange(4, dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)

    def to(self, *given: object, **named: object) -> nn.Module:
        if "dtype" in named or any(isinstance(value, torch.dtype) for value in given):
            raise ValueError("you cannot cast a bitsandbytes model in a new dtype")
        return super().to(*given, **named)


@pytest.mark.parametrize("name", ["32-true", "bf16-mixed", "bf16-true", "16-true"])
def test_quantized_weights_keep_their_format(name):
    model = convert(Quantized(), CPU, name)
    assert model.weight.tolist() == [0, 1, 2, 3]
    assert model.weight.dtype == torch.uint8
