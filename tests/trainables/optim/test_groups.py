"""If these fail, norms and biases decay, or a layer learns at another layer's rate."""

import pytest
import torch
from torch import nn

from trainables.optim.groups import hidden_matrices, split


class Tower(nn.Module):
    """A small model shaped like a transformer: an embedding, blocks, and layers after them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.position = nn.Parameter(torch.zeros(4))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm((2, 2))) for _ in range(3)
        )
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 6)


def by_name(model: nn.Module, groups) -> dict[str, dict]:
    """Return the group of each parameter by name; each parameter is in one group."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    pairs = [(names[id(weight)], group) for group in groups for weight in group["params"]]
    assert len(pairs) == len({name for name, _ in pairs})
    return dict(pairs)


def test_only_matrices_decay_and_none_of_a_norm():
    model = Tower()
    group_of = by_name(model, split(model, 0.1, 0.05, 1.0))
    assert group_of.keys() == dict(model.named_parameters()).keys()
    decaying = {name for name, group in group_of.items() if group["weight_decay"] == 0.05}
    blocks = {f"blocks.{block}.0.weight" for block in range(3)}
    assert decaying == {"embedding.weight", "head.weight", *blocks}
    assert {group["weight_decay"] for group in group_of.values()} == {0.0, 0.05}


def test_without_layer_decay_there_are_two_groups_at_the_given_rate():
    groups = split(Tower(), 0.1, 0.05, 1.0)
    assert [(group["name"], group["lr"]) for group in groups] == [
        ("no decay", 0.1),
        ("decay", 0.1),
    ]


def test_each_depth_learns_at_its_share_of_the_last_ones_rate():
    model = Tower()
    group_of = by_name(model, split(model, 0.1, 0.05, 0.5))
    expected = {
        "embedding.weight": (0.1 / 16, "depth 0 of 4, decay"),
        "position": (0.1 / 16, "depth 0 of 4, no decay"),
        "blocks.0.0.weight": (0.1 / 8, "depth 1 of 4, decay"),
        "blocks.2.2.weight": (0.1 / 2, "depth 3 of 4, no decay"),
        "norm.weight": (0.1, "depth 4 of 4, no decay"),
        "head.weight": (0.1, "depth 4 of 4, decay"),
    }
    assert {name: (group_of[name]["lr"], group_of[name]["name"]) for name in expected} == {
        name: (pytest.approx(rate), label) for name, (rate, label) in expected.items()
    }


def test_a_tied_weight_is_in_one_group_where_it_stands_first():
    model = Tower()
    model.head.weight = model.embedding.weight
    group_of = by_name(model, split(model, 0.1, 0.05, 0.5))
    assert group_of["embedding.weight"]["name"] == "depth 0 of 4, decay"
    assert "head.weight" not in group_of


def test_momenta_fit_groups_with_other_values():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    layouts = [
        [[id(weight) for weight in group["params"]] for group in split(model, lr, decay, layers)]
        for lr, decay, layers in ((0.1, 0.0, 0.9), (0.2, 0.5, 0.5))
    ]
    assert layouts[0] == layouts[1]


def names_of(model: nn.Module) -> list[str]:
    hidden = {id(weight) for weight in hidden_matrices(model)}
    return [name for name, weight in model.named_parameters() if id(weight) in hidden]


def test_hidden_matrices_lie_between_embeddings_and_the_output_layer():
    between = [f"blocks.{block}.0.weight" for block in range(3)]
    tower = Tower()
    assert names_of(tower) == between
    tower.head.weight = tower.embedding.weight
    assert names_of(tower) == between
    images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 2))
    assert names_of(images) == ["2.weight"]
    assert names_of(nn.Linear(3, 2)) == []
