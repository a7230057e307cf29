"""Norms of plain tensors; those of sharded ones are tested in ../contracts."""

import pytest
import torch
from torch.nn import Parameter

from trainables.optim.norms import (
    local_part,
    sharded_gradient,
    tensor_norms,
    trust_ratios,
)


def test_norms_are_euclidean_in_float32_or_finer():
    tensors = [torch.tensor([3.0, 4.0]), torch.full((4,), 2.0, dtype=torch.float64)]
    norms = tensor_norms(tensors, tensors)
    assert [norm.item() for norm in norms] == [5.0, 4.0]
    assert [norm.dtype for norm in norms] == [torch.float32, torch.float64]


def test_a_layer_without_weights_or_update_has_the_ratio_1():
    weights = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.ones(2)]
    parts = [torch.tensor([0.0, 10.0]), torch.ones(2), torch.zeros(2)]
    ratios = [ratio.item() for ratio in trust_ratios(parts, weights, 0.1)]
    assert ratios == pytest.approx([0.05, 1.0, 1.0])


def test_a_plain_tensor_is_its_own_part_and_needs_a_gradient_to_have_one():
    weight = Parameter(torch.ones(2))
    assert local_part(weight) is weight
    with pytest.raises(ValueError, match="without gradient"):
        sharded_gradient(weight)
    weight.grad = torch.ones(2)
    assert sharded_gradient(weight) is weight.grad
