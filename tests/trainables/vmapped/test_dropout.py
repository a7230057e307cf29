"""Dropout of several trials. If these fail, a trial's masks depend on the trials beside it."""

import torch
from torch import nn

from trainables.vmapped.dropout import DropoutMasks, TrialDropout, rates, replace


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_masks_are_those_of_torch_s_own_dropout():
    torch.manual_seed(5)
    expected = nn.functional.dropout(torch.ones(4, 6), 0.5)
    masks = DropoutMasks(generators(5), {"d": (0.5,)}).masks(torch.empty(1, 4, 6), "d")
    assert torch.equal(masks[0], expected)


def test_a_rate_of_1_drops_everything_and_no_value_is_infinite():
    masks = DropoutMasks(generators(1), {"d": (1.0,)}).masks(torch.empty(1, 8), "d")
    assert (masks == 0.0).all()


def test_each_dropout_of_a_model_is_replaced_under_its_name():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.1)))
    assert rates(model) == {"1": 0.5, "2.0": 0.1}
    replace(model, draws := DropoutMasks(generators(1), {"1": (0.5,), "2.0": (0.1,)}))
    assert [type(model[1]), type(model[2][0])] == [TrialDropout] * 2
    assert (model[2][0].dropout_masks, model[2][0].name) == (draws, "2.0")
    assert rates(model) == {}


def test_evaluation_and_rates_of_0_change_nothing():
    x = torch.ones(3)
    dropped = TrialDropout(DropoutMasks(generators(1), {"d": (0.5,)}), "d").eval()
    assert dropped(x) is x
    assert TrialDropout(DropoutMasks(generators(1), {"d": (0.0,)}), "d")(x) is x
