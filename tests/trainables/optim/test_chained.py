"""If these fail, several optimizers as one update other weights than the task meant, or forget."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Muon

from trainables.optim.chained import Chained, as_one, name_of


def parts(network: nn.Sequential) -> list[torch.optim.Optimizer]:
    groups = [{"params": [network[0].bias], "lr": 0.02}, {"params": network[1].parameters()}]
    return [Muon([network[0].weight], lr=0.1), AdamW(groups, lr=0.03)]


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2))


def train(network: nn.Module, optimizers: list[torch.optim.Optimizer], times: int = 3) -> None:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(times):
        network.zero_grad()
        (network(x) - 1).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(weight, same) for weight, same in pairs)


def test_it_steps_as_its_parts_do_one_after_the_other():
    one, other = model(), model()
    train(one, [Chained(parts(one))])
    train(other, parts(other))
    assert equal(one, other)


def test_a_rate_set_in_its_groups_holds_also_after_loading():
    one, other = model(), model()
    chained, again = Chained(parts(one)), Chained(parts(other))
    train(one, [chained])
    again.load_state_dict(deepcopy(chained.state_dict()))
    other.load_state_dict(one.state_dict())
    for optimizer in (chained, again):
        for group in optimizer.param_groups:
            group["lr"] *= 0.5
    train(one, [chained])
    train(other, [again])
    assert equal(one, other)
    assert [group["lr"] for part in again.parts for group in part.param_groups] == [
        0.05,
        0.01,
        0.015,
    ]


def test_its_state_is_that_of_all_parts():
    network = model()
    chained = Chained(parts(network))
    train(network, [chained])
    assert set(chained.state) == set(network.parameters())
    assert all(part.state is chained.state for part in chained.parts)
    states = chained.state_dict()["state"]
    assert [set(states[at]) for at in (0, 1)] == [
        {"momentum_buffer"},
        {"step", "exp_avg", "exp_avg_sq"},
    ]


def test_a_weight_of_two_optimizers_is_refused():
    network = model()
    both = {"one": SGD(network.parameters(), lr=0.1), "two": SGD([network[1].bias], lr=0.1)}
    for built in (both, list(both.values())):
        with pytest.raises(ValueError, match=r"Own\.build: two optimizers update 1\.bias;"):
            as_one(built, network, "Own.build")


@pytest.mark.parametrize("built", [None, [], {}, ["adam"], {1: SGD([torch.ones(1)], lr=0.1)}])
def test_what_is_no_optimizer_is_refused_with_the_ways_out(built):
    with pytest.raises(TypeError, match=r"Own\.build returned .*return a torch\.optim\.Optimizer"):
        as_one(built, model(), "Own.build")


def test_a_checkpoint_says_of_which_parts_and_turns_it_is():
    network = model()
    one, two = network[0].parameters(), network[1].parameters()
    turns = as_one({"a": Adam(one), "b": SGD(two, lr=0.1)}, network, "Own.build")
    assert name_of(turns) == "a: Adam, b: SGD"
    assert name_of(Chained(parts(network))) == "Muon, AdamW"
    assert name_of(Adam(network.parameters())) == "Adam"
