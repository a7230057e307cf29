"""If these fail, people see the wrong layer explode."""

import pytest
import torch
from torch import nn

from trainables.monitoring.layers import Layers, merged


def looked(model: nn.Module, step: torch.optim.Optimizer, most: int = 50) -> dict[str, float]:
    layers = Layers(model, most)
    layers.before_step()
    step.step()
    return layers.after_step()


def names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def test_a_plain_step_moves_a_layer_by_rate_times_gradient():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model(torch.randn(5, 3)).square().sum().backward()
    vectors = {
        index: [torch.cat([model[index].weight.ravel(), model[index].bias]).detach().clone()]
        for index in (0, 2)
    }
    for index, vector in vectors.items():
        vector.append(torch.cat([model[index].weight.grad.ravel(), model[index].bias.grad]))
    metrics = looked(model, torch.optim.SGD(model.parameters(), lr=0.01))
    assert len(metrics) == 4
    for index, (weight, gradient) in vectors.items():
        ratio = 0.01 * gradient.norm() / weight.norm()
        assert metrics[f"grad_norm/{index}"] == pytest.approx(gradient.norm().item(), rel=1e-6)
        assert metrics[f"update_ratio/{index}"] == pytest.approx(ratio.item(), rel=1e-3)


def test_gradients_are_those_before_the_step_whatever_becomes_of_them():
    """Clipping comes after the look, and would hide the explosion."""
    model = nn.Linear(1, 1, bias=False)
    model.weight.grad = torch.tensor([[30.0]])
    layers = Layers(model)
    layers.before_step()
    model.weight.grad.zero_()
    assert layers.after_step() == {"grad_norm/root": 30.0, "update_ratio/root": 0.0}


def test_a_layer_that_is_zero_has_no_ratio_and_one_without_gradient_a_norm_of_zero():
    model = nn.ModuleDict({"zero": nn.Linear(2, 2), "still": nn.Linear(2, 2)})
    nn.init.zeros_(model["zero"].weight)
    nn.init.zeros_(model["zero"].bias)
    model["zero"](torch.ones(1, 2)).sum().backward()
    metrics = looked(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert metrics.keys() == {"grad_norm/zero", "grad_norm/still", "update_ratio/still"}
    assert metrics["grad_norm/still"] == 0.0


def test_frozen_layers_are_left_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    model(torch.ones(1, 2)).sum().backward()
    assert looked(model, torch.optim.SGD(model.parameters(), lr=0.1)).keys() == {
        "grad_norm/1",
        "update_ratio/1",
    }


def test_mixed_and_short_formats_do_not_overflow():
    model = nn.Sequential(nn.Linear(300, 300).half(), nn.Linear(2, 2).double())
    for weight in model.parameters():
        weight.grad = torch.full_like(weight, 6e4)
    layers = Layers(model)
    layers.before_step()
    metrics = layers.after_step()
    count = 300 * 300 + 300
    norm = torch.tensor(6e4).half().item() * count**0.5
    assert metrics["grad_norm/0"] == pytest.approx(norm, rel=1e-3)
    assert metrics["grad_norm/1"] == pytest.approx(6e4 * 6**0.5, rel=1e-9)


def test_sparse_gradients_are_seen_whole():
    model = nn.Embedding(10, 4, sparse=True)
    model(torch.tensor([1, 1, 7])).sum().backward()
    layers = Layers(model)
    layers.before_step()
    # Row 1 was asked for twice: four values of 2, four of 1.
    assert layers.after_step()["grad_norm/root"] == pytest.approx((4 * 4 + 4 * 1) ** 0.5)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(2), nn.Linear(2, 2)
        self.mlp = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))


def blocks(count: int) -> nn.ModuleDict:
    blocks = nn.ModuleList(Block() for _ in range(count))
    return nn.ModuleDict({"embed": nn.Embedding(3, 2), "blocks": blocks, "head": nn.Linear(2, 3)})


def test_a_small_models_layers_are_the_modules_that_own_parameters():
    assert list(merged(names(blocks(1)), 50)) == [
        "embed",
        "blocks.0.norm",
        "blocks.0.attention",
        "blocks.0.mlp.0",
        "blocks.0.mlp.2",
        "head",
    ]


def test_a_very_deep_models_neighbours_share_a_layer():
    layers = list(merged(names(blocks(96)), 50))
    assert layers[:3] == ["embed", "blocks.0-1", "blocks.2-3"]
    assert layers[-2:] == ["blocks.94-95", "head"]
    assert len(layers) == 50


@pytest.mark.parametrize("count", [1, 7, 13, 49, 97, 300])
@pytest.mark.parametrize("most", [3, 10, 50])
def test_no_parameter_is_lost_or_counted_twice_however_many_are_merged(count, most):
    model = names(blocks(count))
    layers = merged(model, most)
    assert len(layers) <= most
    assert sorted(at for places in layers.values() for at in places) == list(range(len(model)))
