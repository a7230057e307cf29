"""Adapted layers. If these fail, a merged model is another one."""

import pytest
import torch
from torch import nn

from trainables.lora.layers import LoraEmbedding, LoraLinear

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
AT = torch.tensor([[0, 3], [6, 3]])


def linear():
    return LoraLinear(nn.Linear(3, 4, dtype=torch.float64), 2, 0.5, dropout=0.0), X


def embedding():
    return LoraEmbedding(nn.Embedding(7, 4, dtype=torch.float64), 2, 0.5), AT


@pytest.mark.parametrize("make", [linear, embedding])
def test_an_untrained_adapter_changes_nothing(make):
    layer, given = make()
    plain = nn.functional.linear(X, layer.weight, layer.bias) if given is X else layer.weight[AT]
    torch.testing.assert_close(layer(given), plain)


@pytest.mark.parametrize("make", [linear, embedding])
def test_a_merged_layer_gives_the_same_and_comes_back_to_its_base(make):
    layer, given = make()
    base = layer.weight
    for adapter in (layer.lora_A, layer.lora_B):
        nn.init.normal_(adapter)
    before = layer(given)
    for _ in range(2):  # merging twice adds it once
        layer.merge()
    torch.testing.assert_close(layer(given), before)
    torch.testing.assert_close(layer.weight, base + layer.addition())
    layer.unmerge()
    assert layer.weight is base
    torch.testing.assert_close(layer(given), before)


def test_a_weight_that_is_tied_elsewhere_stays_as_it_is_in_a_merge():
    layer, _ = linear()
    nn.init.normal_(layer.lora_B)
    tied, before = layer.weight, layer.weight.detach().clone()
    layer.merge()
    assert torch.equal(tied, before)


def test_the_addition_is_the_product_at_its_scale():
    layer, _ = linear()
    nn.init.ones_(layer.lora_A)
    nn.init.ones_(layer.lora_B)
    assert torch.equal(layer.addition(), torch.full((4, 3), 2 * 0.5, dtype=torch.float64))
