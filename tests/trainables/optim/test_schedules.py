"""If these fail, trials train at learning rates other than those that their specs ask for."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from trainables.optim.schedules import PATIENCE, SHRINK, Plateau


@given(st.lists(st.integers(1, 9), max_size=80))
def test_a_plateau_falls_when_that_of_torch_does(losses):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs, plateau = lr_scheduler.ReduceLROnPlateau(optimizer), Plateau()
    for loss in losses:
        theirs.step(loss)
        plateau.observe(loss)
        assert plateau.factor == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("loss", [2.0, -0.9, math.nan])
def test_the_same_loss_again_and_again_is_a_plateau(loss):
    plateau = Plateau()
    plateau.observe(loss)
    for _ in range(PATIENCE):
        plateau.observe(loss)
    assert plateau.factor == (SHRINK if math.isnan(loss) else 1.0)
    plateau.observe(loss)
    assert plateau.factor == SHRINK


@given(st.lists(st.floats(-1, 1), max_size=40), st.lists(st.floats(-1, 1), max_size=40))
def test_a_plateau_goes_on_from_a_saved_one(before, after):
    first, second = Plateau(), Plateau()
    for loss in before:
        first.observe(loss)
    second.load_state_dict(first.state_dict())
    for loss in after:
        first.observe(loss)
        second.observe(loss)
    assert first.state_dict() == second.state_dict()
