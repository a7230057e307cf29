"""Plans of which rank has which part of a layer."""

from tasks import Deep
from torch import nn

from trainables.parallel import plan


def test_linear_layers_in_a_row_are_paired():
    assert plan.pairs(Deep().build_model()) == {
        "0": "colwise", "3": "rowwise", "5": "colwise", "7": "rowwise",
    }  # fmt: skip
    assert plan.pairs(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2), nn.Linear(2, 2))) == {}
