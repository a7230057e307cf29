"""Copies of a training state."""

import pytest
import torch
from torch import nn
from training_states import fresh, trained, update

from trainables.checkpoints.restoring import restore
from trainables.checkpoints.snapshot import Snapshot, take


def test_a_copy_stays_as_it_was_while_training_goes_on():
    state = trained()
    copy, before = take(state).copied(), take(state).tensors["model.first.weight"].clone()
    update(state, 1)
    assert torch.equal(copy.tensors["model.first.weight"], before)
    restore(copy, state)
    assert torch.equal(state.model.first.weight, before)


def test_statistics_that_a_checkpoint_has_not_averaged_begin_at_the_model_s_own():
    state, again = trained(), fresh()
    held = take(state)
    running = {name for name in held.tensors if "average.norm.running" in name}
    assert len(running) == 2
    older = {name: value for name, value in held.tensors.items() if name not in running}
    restore(Snapshot(older, held.values), again)
    assert again.average.updates == 3
    with again.average.applied(), state.average.applied():
        assert torch.equal(again.model.first.weight, state.model.first.weight)
    for name in ("running_mean", "running_var"):
        own = getattr(state.model.norm, name)
        with again.average.applied():
            assert torch.equal(getattr(again.model.norm, name), own)
    del older["average.first.weight"]
    with pytest.raises(ValueError, match=r"it lacks average\.first\.weight"):
        restore(Snapshot(older, held.values), fresh())


def test_an_optimizer_of_what_no_checkpoint_would_hold_is_refused():
    state = fresh()
    state.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(5))]})
    with pytest.raises(ValueError, match=r"shape \(5,\) that is no parameter of the model"):
        take(state)
