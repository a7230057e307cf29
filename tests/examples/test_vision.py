"""Networks for images."""

import pytest
import torch
from vision import Shape, build


@pytest.mark.parametrize("kind", ["cnn", "resnet", "vit"])
@pytest.mark.parametrize("side", [8, 28])
def test_each_network_gives_scores_and_every_weight_has_a_gradient(kind, side):
    model = build(Shape(kind, width=16, depth=2), channels=1, side=side, classes=10)
    scores = model(torch.rand(3, 1, side, side))
    assert scores.shape == (3, 10)
    scores.square().sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in model.parameters())
