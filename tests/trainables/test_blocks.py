"""The repeated blocks of models."""

import pytest
from tasks import Counted, deep
from torch import nn

from trainables.blocks import blocks


def test_the_blocks_are_the_longest_lists_elements_with_weights():
    model = nn.ModuleDict({"stem": nn.Sequential(nn.Linear(1, 1)), "body": deep()})
    assert list(blocks(model)) == ["body.0", "body.1", "body.2", "body.3"]


class Layer(nn.Module):
    """A layer of a mixture of eight experts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(8))


class Encoder(nn.Module):
    """Layers in a list, as in most models."""

    def __init__(self, number: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(number))


@pytest.mark.parametrize("number", [1, 4])
def test_experts_of_a_layer_are_no_blocks(number):
    expected = [f"layers.{at}" for at in range(number)]
    assert list(blocks(Encoder(number))) == expected


def test_blocks_are_found_in_a_model_that_is_called_one_part_after_the_other():
    layers = [f"1.layers.{at}" for at in range(4)]
    assert list(blocks(nn.Sequential(nn.Embedding(3, 4), Encoder(), nn.Linear(4, 3)))) == layers
    ends = nn.Sequential(nn.Linear(3, 4), Encoder(), nn.Linear(4, 3))
    assert list(blocks(ends)) == ["0", *layers, "2"]


def test_blocks_that_are_lists_of_layers_stay_whole():
    layers = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(3)]
    assert list(blocks(nn.Sequential(*layers, nn.Linear(4, 1)))) == ["0", "1", "2", "3"]
    assert list(blocks(nn.Sequential(layers[0], nn.Linear(4, 1)))) == ["0", "1"]


def test_stages_side_by_side_all_have_blocks():
    stages = {f"stage{at}": nn.Sequential(*(Counted() for _ in range(at))) for at in (2, 4, 3)}
    model = nn.ModuleDict({"stem": nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), **stages})
    assert list(blocks(model)) == [f"stage{at}.{key}" for at in (2, 4, 3) for key in range(at)]


def test_the_blocks_of_a_library_model_are_those_that_it_names():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "vocab_size": 9}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads))
    assert list(blocks(model)) == ["model.layers.0", "model.layers.1"]
    del heads["num_key_value_heads"], heads["head_dim"]
    model = transformers.BertModel(transformers.BertConfig(**sizes, **heads))
    assert list(blocks(model)) == ["encoder.layer.0", "encoder.layer.1"]
