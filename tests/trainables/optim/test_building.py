"""If these fail, the optimizer that a spec names is another one, or a parameter is left out."""

import pytest
import torch
from torch import nn

from trainables.optim.building import OptimizerOptions, build

OPTIONS = OptimizerOptions("adamw", lr=0.1, weight_decay=0.5, momentum=0.9, layer_decay=1.0)


def options(**values) -> OptimizerOptions:
    return OptimizerOptions(**{**OPTIONS.__dict__, **values})


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 2))


def train(network: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(10):
        optimizer.zero_grad()
        (network(x) - 1).square().mean().backward()
        optimizer.step()
    return list(network.parameters())


def by_hand(network: nn.Module, kind, **given) -> torch.optim.Optimizer:
    decaying = [weight for weight in network.parameters() if weight.ndim > 1]
    rest = [weight for weight in network.parameters() if weight.ndim <= 1]
    return kind([{"params": decaying}, {"params": rest, "weight_decay": 0.0}], **given)


def test_adamw_is_that_of_torch_whose_norms_and_biases_do_not_decay():
    first, second = model(), model()
    torch.testing.assert_close(
        train(first, build(first, OPTIONS)),
        train(second, by_hand(second, torch.optim.AdamW, lr=0.1, weight_decay=0.5)),
    )


def test_sgd_is_that_of_torch_without_nesterov():
    first, second = model(), model()
    given = {"lr": 0.1, "weight_decay": 0.5, "momentum": 0.9}
    for ours, theirs in zip(
        train(first, build(first, options(name="sgd"))),
        train(second, by_hand(second, torch.optim.SGD, **given)),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_adamw_trains_a_model_that_is_partly_complex():
    """No single kernel has the step of such a weight."""
    network = nn.Module()
    network.wave = nn.Parameter(torch.ones(2, 2, dtype=torch.complex64))
    optimizer = build(network, OPTIONS)
    network.wave.abs().sum().backward()
    optimizer.step()
    assert not torch.equal(network.wave, torch.ones(2, 2, dtype=torch.complex64))


def test_a_model_with_nothing_to_train_is_named():
    frozen = model().requires_grad_(False)
    with pytest.raises(ValueError, match="Sequential has no parameter with requires_grad"):
        build(frozen, OPTIONS)


def test_muon_trains_hidden_matrices_and_adamw_the_rest():
    first, second = (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)) for _ in "ab")
    second.load_state_dict(first.state_dict())
    built = build(first, options(name="muon"))
    matrix, *rest = second.parameters()
    muon = torch.optim.Muon([matrix], lr=0.1, weight_decay=0.5, adjust_lr_fn="match_rms_adamw")
    groups = [
        {"params": [rest[1]], "weight_decay": 0.5},
        {"params": [rest[0], rest[2]], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.1, fused=True)
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        for network, optimizers in ((first, [built]), (second, [muon, adamw])):
            network.zero_grad()
            (network(x) - 1).square().mean().backward()
            for optimizer in optimizers:
                optimizer.step()
    for own, by_hand_ in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(own, by_hand_)


def test_muon_moves_a_matrix_about_as_far_as_adamw_does():
    """One range of learning rates suits both."""
    sizes = []
    for name in ("muon", "adamw"):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 2))
        before = network[0].weight.detach().clone()
        optimizer = build(network, options(name=name, lr=1e-3, weight_decay=0.0))
        for weight in network.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.step()
        sizes.append((network[0].weight - before).square().mean().sqrt().item())
    assert 0.15 < sizes[0] / sizes[1] < 0.25  # AdamW's later steps are 0.2 to 0.4 of its first


def test_muon_is_refused_for_a_model_without_hidden_matrices():
    with pytest.raises(ValueError, match="muon is for hidden matrices, and Sequential has none"):
        build(nn.Sequential(nn.Embedding(4, 5), nn.Linear(5, 2)), options(name="muon"))
