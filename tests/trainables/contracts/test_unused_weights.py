"""Weights without gradient in some updates, or always. If these fail, DDP stops, or ranks drift.

Axes: B samples of a batch, T tokens of a sample, F features.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from tasks import Deep, Generating, Headed, Penalized, learned, losses, refusals, runs_of
from torch import Tensor, nn

from trainables import Training
from trainables.data import Batch, Data, Tensors
from trainables.parallel.agreement import UnequalUse

EXACT = Training("ddp", "64-true")


class Experts(nn.Module):
    """A router: samples whose first number is above the bound go another way; one way is unused."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound
        self.lift, self.head = nn.Linear(3, 8), nn.Linear(8, 1)
        self.usual, self.rare, self.never = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x_BTF: Tensor) -> Tensor:
        rare_B = x_BTF[:, 0, 0] > self.bound
        lifted = self.lift(x_BTF).tanh()
        output = torch.zeros_like(lifted)
        for chosen_B, way in ((rare_B, self.rare), (~rare_B, self.usual)):
            if chosen_B.any():
                output[chosen_B] = way(lifted[chosen_B])
        return self.head(output)


@dataclass(frozen=True)
class Routed(Deep):
    """A task with experts; weights with a gradient, even 0, shrink."""

    lr: float = 0.05
    bound: float = 1.0
    plain: bool = False  # whether a gradient of 0 changes nothing

    def build_model(self) -> nn.Module:
        return Experts(self.bound)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        rest = {} if self.plain else {"momentum": 0.9, "weight_decay": 0.1}
        return torch.optim.SGD(model.parameters(), lr=self.lr, **rest)


class Layer(nn.Module):
    """Experts by the sign of a sample's first number, which a batch may skip, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 8)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, x_BTF: Tensor) -> Tensor:
        lifted = self.gate(x_BTF).tanh()
        output = self.frozen(lifted)
        for expert, chosen_B in enumerate((lifted[:, 0, 0] > 0.0, lifted[:, 0, 0] <= 0.0)):
            if chosen_B.any():
                output[chosen_B] += self.experts[expert](lifted[chosen_B])
        return x_BTF + output


class Mixture(nn.Module):
    """Two layers of experts, each a unit of FSDP, and a branch that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.head, self.unused = nn.Linear(3, 8), nn.Linear(8, 1), nn.Linear(8, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x_BTF: Tensor) -> Tensor:
        x_BTF = self.lift(x_BTF)
        for layer in self.layers:
            x_BTF = layer(x_BTF)
        return self.head(x_BTF)


@dataclass(frozen=True)
class Mixed(Routed):
    """A task with experts in blocks."""

    def build_model(self) -> nn.Module:
        return Mixture()


SKIPPED = (Routed(), Routed(bound=99.0), Mixed())


@dataclass(frozen=True)
class Looked(Deep):
    """A task with a number for each word, from a table with sparse gradients."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 1))

    def load_data(self) -> Data:
        word_N = torch.arange(23) % 10
        columns = Tensors(word_N, word_N.double()[:, None] / 10)
        return Data(columns, columns)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch[0]) - batch[1]).square()

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.lr)


@pytest.mark.full
def test_weights_that_only_some_ranks_and_updates_use_learn_what_they_learn_alone(on_two_ranks):
    runs = [
        (Routed(), EXACT),
        (Routed(), replace(EXACT, accumulate=2)),
        (Routed(), replace(EXACT, strategy="zero1")),
        (Routed(bound=99.0), replace(EXACT, static_graph=True)),
        (Looked(), replace(EXACT, accumulate=2)),
        *((task, replace(EXACT, strategy="fsdp")) for task in SKIPPED),
        (Mixed(), replace(EXACT, strategy="fsdp", accumulate=2)),
        (Mixed(), replace(EXACT, strategy="fsdp", reshard_after_forward=False)),
    ]
    results, _ = on_two_ranks(runs_of, runs, 2)
    for reports, (task, _) in zip(results, runs, strict=True):
        expected = losses(learned(task, Training(precision="64-true")))
        assert losses(reports) == pytest.approx(expected, abs=1e-12)


def test_blocks_that_ranks_use_differently_are_refused_and_named_under_fsdp(on_two_ranks):
    """A gathered weight knows no name: weights would be mixed, or a rank would wait forever."""
    zero3 = replace(EXACT, strategy="fsdp")
    zero2 = replace(zero3, reshard_after_forward=False)
    called = "rank 0 called heads.1, where rank 1 called heads.0"
    more = "rank 0 called heads.1, where rank 1 ended its pass"
    reduced = "rank 0 had the gradients of heads.1, where rank 1 had the gradients of heads.0"
    runs = [
        (Headed(), zero3, called),
        (Headed(evaluated=True), zero3, called),
        (Headed(way="more"), zero3, more),
        (Headed(way="more", evaluated=True), zero2, more),
        (Headed(way="unused"), zero3, called),
        (Headed(way="unused"), zero2, reduced),
        (Generating(), zero3, "rank 0 ended its pass, where rank 1 called 0"),
    ]
    for messages in on_two_ranks(refusals, [run[:2] for run in runs], UnequalUse):
        for message, (*_, expected) in zip(messages, runs, strict=True):
            assert expected in message
            assert "choose ddp or zero1" in message


@pytest.mark.full
def test_gradients_of_gradients_are_refused_under_fsdp_and_those_for_samples_are_exact(
    on_two_ranks,
):
    """torch would end in an error about the storage of a tensor."""
    fsdp, adversarial = replace(EXACT, strategy="fsdp"), Penalized(adversarial=True)
    for messages in on_two_ranks(refusals, [(Penalized(), fsdp)], ValueError):
        assert "gradients of gradients" in messages[0]
        assert "choose ddp or zero1" in messages[0]
    runs = [(Penalized(), EXACT), (adversarial, fsdp)]
    reports, _ = on_two_ranks(runs_of, runs, 2)
    for seen, (task, _) in zip(reports, runs, strict=True):
        expected = losses(learned(task, Training(precision="64-true")))
        assert losses(seen) == pytest.approx(expected, abs=1e-12)


def test_weights_that_are_first_left_out_later_get_the_mean_of_those_ranks_that_use_them(
    on_two_ranks,
):
    # Ranks do not look for such weights in the first updates where batch norms exchange.
    late = replace(EXACT, sync_batchnorm=True)
    runs = [
        (Routed(plain=True), late),
        (Routed(plain=True), replace(late, accumulate=2)),
        (Routed(plain=True), replace(late, accumulate=3)),
        (Routed(plain=True), Training("ddp", gradient_compression="fp16")),
    ]
    results, _ = on_two_ranks(runs_of, runs, 2)
    expected = losses(learned(Routed(plain=True), Training(precision="64-true")))
    for reports in results[:3]:
        assert losses(reports) == pytest.approx(expected, abs=1e-12)
    assert losses(results[3]) == pytest.approx(expected, rel=1e-2)
