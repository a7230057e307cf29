"""Optimizer states that ranks share. If these fail, trials learn something else, or run out of
memory that they should have had."""

import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

from trainables import Training, Worker
from trainables.optim.building import OptimizerOptions, build
from trainables.parallel.zero1 import Zero1, _updated, looks_at_all_weights

EXACT = Training("zero1", "64-true")


def kept(rank: int) -> dict[str, object]:
    """Return an optimizer's state after a step, and after loading another one's state."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    complete = torch.optim.AdamW(model.parameters(), lr=0.0)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    complete.step()
    strategy = Zero1(replace(Worker.alone(training=EXACT), rank=rank, world_size=2))
    optimizer = torch.optim.AdamW(
        [
            {"params": list(layer.parameters()), "lr": 0.1, "name": f"{at}"}
            for at, layer in enumerate(model)
        ],
        fused=True,
    )
    assert strategy.setup_optimizer(optimizer) is optimizer
    before = [weight.detach().clone() for weight in model.parameters()]
    for group in optimizer.param_groups:
        group["lr"] = 0.5 if group["name"] == "0" else 0.0
    optimizer.step()
    moved = [
        bool((weight - old).abs().min() > 0.4)
        for weight, old in zip(model.parameters(), before, strict=True)
    ]
    momenta = numbers(optimizer)
    gradients = all(weight.grad is not None for weight in model.parameters())
    state = optimizer.state_dict()
    optimizer.load_state_dict({**state, "state": complete.state_dict()["state"]})
    return {
        "momenta": momenta,
        "loaded": numbers(optimizer),
        "moved": moved,
        "gradients": gradients,
        "weights": [weight.detach() for weight in model.parameters()],
        "at": sorted(state["state"]),
    }


def numbers(optimizer: torch.optim.Optimizer) -> int:
    return sum(value.numel() for kept in optimizer.state.values() for value in kept.values())


def test_each_rank_keeps_the_state_of_its_part_and_obeys_the_groups(on_two_ranks):
    first, second = on_two_ranks(kept)
    total = 4 * (2 * (8 * 8 + 8) + 2)  # two moments and a count of steps for each weight
    for seen in (first, second):
        assert seen["momenta"] == seen["loaded"] == total / 2
        assert seen["moved"] == [True] * 2 + [False] * 6
        assert seen["gradients"]
    assert sorted(first["at"] + second["at"]) == list(range(8))
    for mine, theirs in zip(first["weights"], second["weights"], strict=True):
        assert torch.equal(mine, theirs)


class Adapted(torch.optim.SGD):
    """An optimizer whose rate follows from all gradients, as in D-Adaptation and Prodigy."""

    def step(self, closure=None):
        weights = [weight for group in self.param_groups for weight in group["params"]]
        total = sum(weight.grad.norm() for weight in weights if weight.grad is not None)
        self.param_groups[0]["lr"] = 0.1 / float(1.0 + total)
        return super().step(closure)


class AdaptedByAttribute(torch.optim.SGD):
    """Adapted, which keeps options and what it is given in attributes, as in pytorch_optimizer."""

    def __init__(self, params, lr):
        super().__init__(params, lr)
        self.growth, self.rates, self.lock = 1.0, [], threading.Lock()

    @torch.no_grad()
    def step(self, closure=None):
        weights = self.param_groups[0]["params"]
        total = sum(weight.grad.norm() for weight in weights if weight.grad is not None)
        self.rates.append(0.1 / float(self.growth + total))
        for weight in weights:
            weight.sub_(weight.grad, alpha=self.rates[-1])


class Decaying(torch.optim.SGD):
    """An optimizer that changes an option in place."""

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        group["lr"].mul_(0.5)
        for weight in group["params"]:
            weight.sub_(weight.grad * group["lr"])


class Noisy(torch.optim.SGD):
    """An optimizer that draws numbers."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for weight in self.param_groups[0]["params"]:
            weight.add_(torch.randn_like(weight))


def test_an_optimizer_that_looks_at_all_weights_is_refused():
    model = nn.Linear(3, 2)
    worker = replace(Worker.alone(training=Training("zero1")), world_size=2)
    with pytest.raises(ValueError, match=r"a step of Adapted computes a number from all weights"):
        Zero1(worker).setup_optimizer(Adapted(model.parameters(), 0.1))


def assert_looks_at_each_weight_alone(optimizer):
    _updated(optimizer, 1.0, 1)  # whose errors would count as "alone"
    assert not looks_at_all_weights(optimizer)


def test_an_optimizer_that_reads_attributes_is_seen_through():
    """A schedule replaces its step by one of the real optimizer, which must not run."""
    weight = nn.Parameter(torch.ones(3, 2))
    optimizer = AdaptedByAttribute([weight], 0.1)
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    steps = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    _updated(optimizer, 1.0, 1)
    assert looks_at_all_weights(optimizer)
    assert not steps
    assert not optimizer.rates
    assert torch.equal(weight, torch.ones(3, 2))


def test_finding_out_leaves_options_as_they_were():
    rate = torch.tensor(0.1)
    optimizer = Decaying([nn.Parameter(torch.ones(3, 2))], lr=rate)
    assert_looks_at_each_weight_alone(optimizer)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate == torch.tensor(0.1)


@pytest.mark.parametrize(
    "kind",
    ["SGD", "AdamW", "Adafactor", "RMSprop", "Adagrad", "NAdam", "RAdam", "Rprop", "ASGD", "Muon"],
)
def test_optimizers_of_torch_look_at_each_weight_alone(kind):
    weight = nn.Parameter(torch.ones(3, 2))
    assert_looks_at_each_weight_alone(getattr(torch.optim, kind)([weight], lr=0.1))


def test_finding_out_leaves_an_optimizer_and_the_generator_as_they_were():
    weight = nn.Parameter(torch.ones(3, 2))
    optimizer, before = Noisy([weight], lr=0.1), torch.get_rng_state()
    assert_looks_at_each_weight_alone(optimizer)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weight, torch.ones(3, 2))
    assert optimizer.param_groups[0]["params"] == [weight]
    assert not optimizer.state


@pytest.mark.parametrize("name", ["lars", "lamb", "adafactor"])
def test_optimizers_of_this_package_look_at_each_weight_alone(name):
    options = OptimizerOptions(name, 0.1, 0.01, 0.9, 1.0)
    assert_looks_at_each_weight_alone(build(nn.Linear(3, 2), options))
