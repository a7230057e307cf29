"""Dropout of several trials. If these fail, a trial's masks depend on the trials beside it."""

import torch

from trainables.vmapped.dropout import DropoutMasks


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_a_rate_of_1_drops_everything_and_no_value_is_infinite():
    masks = DropoutMasks(generators(1), {"d": (1.0,)}).masks(torch.empty(1, 8), "d")
    assert (masks == 0.0).all()
