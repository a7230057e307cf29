"""Copies of a training state."""

import pytest
import torch
from torch import nn
from training_states import fresh, trained

from trainables.checkpoints.restoring import restore
from trainables.checkpoints.snapshot import take


def test_a_checkpoint_that_lacks_an_average_is_refused():
    held = take(trained())
    del held.tensors["average.first.weight"]
    with pytest.raises(ValueError, match=r"it lacks average\.first\.weight"):
        restore(held, fresh())


def test_an_optimizer_of_what_no_checkpoint_would_hold_is_refused():
    state = fresh()
    state.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(5))]})
    with pytest.raises(ValueError, match=r"shape \(5,\) that is no parameter of the model"):
        take(state)
