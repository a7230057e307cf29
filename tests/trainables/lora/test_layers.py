"""Adapted layers. If these fail, a merged model is another one."""

import torch
from torch import nn

from trainables.lora.layers import LoraLinear

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def linear():
    return LoraLinear(nn.Linear(3, 4, dtype=torch.float64), 2, 0.5, dropout=0.0), X


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
