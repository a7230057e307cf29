"""Norms of plain tensors; those of sharded ones are tested in ../contracts."""

import pytest
import torch

from trainables.optim.norms import trust_ratios


def test_a_layer_without_weights_or_update_has_the_ratio_1():
    weights = [torch.tensor([3.0, 4.0]), torch.zeros(2), torch.ones(2)]
    parts = [torch.tensor([0.0, 10.0]), torch.ones(2), torch.zeros(2)]
    ratios = [ratio.item() for ratio in trust_ratios(parts, weights, 0.1)]
    assert ratios == pytest.approx([0.05, 1.0, 1.0])
