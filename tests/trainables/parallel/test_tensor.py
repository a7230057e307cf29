"""If this fails, trials that split each layer among ranks learn differently from one rank.

Axes: B samples, F features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tasks import Deep, Normed, curves, learned, runs_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from trainables import Training
from trainables.parallel import plan
from trainables.parallel.tensor import split_layers, sync_replicated

EXACT = Training("tensor", "64-true")


class ReadingBlock(nn.Module):
    """A block that reads the weight of a layer of its own without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Embedding(1, 8)
        self.layers = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x * self.scale.weight[0])


class ReadingModel(nn.Module):
    """A model without weights of its own that reads its positions, as language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.position = nn.Linear(3, 8), nn.Embedding(5, 8)
        self.blocks = nn.ModuleList(ReadingBlock() for _ in range(2))
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x) + self.position.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@dataclass(frozen=True)
class Reading(Deep):
    """A task whose modules read weights of others."""

    def build_model(self) -> nn.Module:
        return ReadingModel()


RUNS: dict[str, tuple[Deep, Training]] = {
    "batch norm": (Normed(), EXACT),
    "weights read by their parents": (Reading(), replace(EXACT, activation_checkpointing=1)),
}


@pytest.fixture(scope="module")
def rank_reports(on_two_ranks: Callable[..., Any]) -> dict[str, list[dict[str, float]]]:
    """Return rank 0's reports of each run."""
    rank_0, rank_1 = on_two_ranks(runs_of, list(RUNS.values()), 2)
    assert rank_1 == [[{}, {}, {}]] * len(RUNS)
    return dict(zip(RUNS, rank_0, strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_two_ranks_that_split_layers_learn_what_one_learns(rank_reports, name):
    for seen, expected in zip(rank_reports[name], learned(*RUNS[name]), strict=True):
        assert seen == pytest.approx(expected, abs=1e-12)


def kept(rank: int) -> list[Any]:
    """Return this rank's shares of a layer, and which of its outputs dropout keeps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 32), nn.LayerNorm(32), nn.Dropout(0.5)
    )
    nn.init.ones_(model[0].weight)
    split_layers(model, plan.pairs(model), init_device_mesh("cpu", (2,)))
    seen = []
    for at in (1, 4):
        model[at].register_forward_hook(lambda _, __, found: seen.append((found != 0).tolist()))
    model(torch.ones(1, 4))
    weight, norm = model[0].weight, model[3].weight
    assert isinstance(weight, DTensor)
    assert weight.placements == (Shard(0),)
    assert isinstance(norm, DTensor)
    return [list(weight.to_local().shape), *seen]


def test_ranks_drop_other_units_of_a_split_layer_and_the_same_of_a_whole_one(on_two_ranks):
    (shape_0, split_0, whole_0), (shape_1, split_1, whole_1) = on_two_ranks(kept)
    assert shape_0 == shape_1 == [32, 4]
    assert split_0 != split_1
    assert whole_0 == whole_1
    assert 0 < sum(whole_0[0]) < 32


def drifted(rank: int) -> list[list[float]]:
    """Return a norm's weight and momentum, which differ between ranks, after an epoch."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2), nn.LayerNorm(2))
    split_layers(model, plan.pairs(model), init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    norm = model[3].weight
    momentum = optimizer.state[norm]["momentum_buffer"]
    with torch.no_grad():
        norm.to_local().fill_(rank + 0.25)
        momentum.to_local().fill_(rank + 0.5)
    sync_replicated(SimpleNamespace(model=model, optimizer=optimizer), torch.device("cpu"))
    return [norm.to_local().tolist(), momentum.to_local().tolist()]


def test_weights_that_all_ranks_have_are_those_of_the_first_after_an_epoch(on_two_ranks):
    assert on_two_ranks(drifted) == [[[0.25] * 2, [0.5] * 2]] * 2


class Sided(nn.Module):
    """A task with a weight that only some ranks use."""

    def __init__(self, used_on: tuple[int, ...]) -> None:
        super().__init__()
        self.used_on, self.scale = used_on, nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale if dist.get_rank() in self.used_on else x


@dataclass(frozen=True)
class OneSided(Deep):
    used_on: tuple[int, ...] = ()

    def build_model(self) -> nn.Module:
        return nn.Sequential(*super().build_model(), Sided(self.used_on))


def trained_or_told(rank: int) -> list[str]:
    outcomes = []
    for used_on in ((), (0, 1), (0,), (1,)):
        try:
            curves(rank, OneSided(used_on=used_on), [EXACT], 2, until=1)
            outcomes.append("trained")
        except ValueError as error:
            outcomes.append(str(error).partition(",")[0])
    return outcomes


def test_a_weight_that_some_ranks_do_not_use_is_named(on_two_ranks):
    """Its optimizer would update it on some ranks only, and the model would be two."""
    named = "tensor parallelism: some ranks found a gradient of 8.scale"
    assert on_two_ranks(trained_or_told) == [["trained", "trained", named, named]] * 2


def refused(model: nn.Module, found: Any, ranks: int = 2) -> str:
    with pytest.raises(ValueError, match=r"plan_tensor|tensor parallelism") as refusal:
        plan.check(model, found, ranks)
    return str(refusal.value)


def test_a_plan_that_cannot_be_carried_out_is_refused():
    model = Deep().build_model()
    assert "linear layers are 0, 3, 5, 7" in refused(model, {})
    assert "'2', which is no linear layer" in refused(model, {"2": "colwise"})
    assert "4.weight is rowwise; only a linear" in refused(model, {"4.weight": "rowwise"})
    assert "3 ranks cannot split 8 evenly" in refused(model, {"4.weight": "colwise"}, 3)
    assert "5 is 'column'; choose colwise or rowwise" in refused(model, {"5": "column"})
    assert "5 ranks cannot split its 12 outputs" in refused(model, {"5": "colwise"}, 5)
    assert "recurrent" in refused(nn.Sequential(nn.LSTM(2, 2), model), {"1.5": "colwise"})
    model[3].weight = model[0].weight
    assert "0 and 3, which share a weight" in refused(model, {"3": "rowwise"})
