"""If this fails, trials that split their layers among ranks learn something else than one rank.

Axes: B samples, F features.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tasks import Attentive, Deep, Normed, learned, resumed, runs_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from trainables import Training
from trainables.combinations import refusals
from trainables.parallel import plan
from trainables.parallel.tensor import split

EXACT = Training("tensor", "64-true")
RUNS: dict[str, tuple[Deep, Training]] = {
    "plain": (Deep(), EXACT),
    "accumulate": (Deep(), replace(EXACT, accumulate=2, clip=0.1)),
    "clip by value": (Deep(), replace(EXACT, clip=0.1, clip_by="value")),
    "clip adaptively": (Deep(), replace(EXACT, clip=0.01, clip_by="adaptive")),
    "ema, recompute": (Deep(), replace(EXACT, ema=0.9, recompute=1)),
    "watch": (Deep(), replace(EXACT, watch=2)),
    "adamw": (Deep(), replace(EXACT, optimizer="adamw")),
    "lamb": (Deep(), replace(EXACT, optimizer="lamb", clip=0.1)),
    "lars": (Deep(), replace(EXACT, optimizer="lars")),
    "attention by heads": (Attentive(), replace(EXACT, accumulate=2, clip=0.1)),
    "batch norm": (Normed(), EXACT),
}
# As coarse as their numbers, for a layer's sum is rounded once a rank.
ROUGH: dict[Any, float] = {
    "32-true": 1e-5,
    "bf16-mixed": 0.1,
    "bf16-true": 0.1,
    "16-mixed": 0.02,
    "16-true": 0.02,
}
HALVES = {name: (Deep(), Training("tensor", name, accumulate=2)) for name in ROUGH}


@pytest.fixture(scope="module")
def heard(on_two_ranks: Callable[..., Any]) -> dict[str, list[dict[str, float]]]:
    """What rank 0 reports of each run."""
    runs = RUNS | HALVES
    rank_0, rank_1 = on_two_ranks(runs_of, list(runs.values()), 2)
    assert rank_1 == [[{}, {}, {}]] * len(runs)
    return dict(zip(runs, rank_0, strict=True))


@pytest.mark.parametrize("name", RUNS)
def test_two_ranks_that_split_layers_learn_what_one_learns(heard, name):
    for seen, expected in zip(heard[name], learned(*RUNS[name]), strict=True):
        assert seen == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", HALVES)
def test_layers_are_split_at_every_precision(heard, name):
    seen, expected = heard[name][-1], learned(*HALVES[name])[-1]
    assert seen["val/loss"] == pytest.approx(expected["val/loss"], rel=ROUGH[name])
    assert seen.get("train/loss_scale") == expected.get("train/loss_scale")


def test_split_layers_with_dropout_go_on_bit_by_bit(on_two_ranks, tmp_path):
    trainings = [replace(EXACT, optimizer="adamw"), Training("tensor", "16-mixed")]
    rank_0, _ = on_two_ranks(resumed, Deep(dropout=0.2), trainings, 2, tmp_path)
    for whole, parts in rank_0:
        assert len(whole) == 4
        assert parts == whole


def kept(rank: int) -> list[Any]:
    """The shares of a layer that this rank holds, and which of its outputs dropout keeps."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 32), nn.LayerNorm(32), nn.Dropout(0.5)
    )
    nn.init.ones_(model[0].weight)
    split(model, plan.pairs(model), init_device_mesh("cpu", (2,)))
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


def test_linear_layers_in_a_row_are_paired():
    assert plan.pairs(Deep().build_model()) == {
        "0": "colwise", "3": "rowwise", "5": "colwise", "7": "rowwise",
    }  # fmt: skip
    assert plan.pairs(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))) == {}


def test_an_optimizer_that_cannot_train_shared_weights_is_refused():
    [(option, reason)] = refusals(replace(EXACT, optimizer="adafactor"), 2)
    assert option == "optimizer"
    assert "weights that ranks share" in reason


def refused(model: nn.Module, found: Any, ranks: int = 2) -> str:
    with pytest.raises(ValueError, match=r"plan_tensor|tensor parallelism") as refusal:
        plan.check(model, found, ranks)
    return str(refusal.value)


def test_a_plan_that_cannot_be_carried_out_is_refused():
    model = Deep().build_model()
    assert "linear layers are 0, 3, 5, 7" in refused(model, {})
    assert "'4', which is no linear layer" in refused(model, {"4": "colwise"})
    assert "5 is 'column'; choose colwise or rowwise" in refused(model, {"5": "column"})
    assert "5 ranks cannot split its 12 outputs" in refused(model, {"5": "colwise"}, 5)
    assert "recurrent" in refused(nn.Sequential(nn.LSTM(2, 2), model), {"1.5": "colwise"})
    model[3].weight = model[0].weight
    assert "0 and 3, which share a weight" in refused(model, {"3": "rowwise"})
