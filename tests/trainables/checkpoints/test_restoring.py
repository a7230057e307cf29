"""What comes back from a checkpoint. If these fail, a trial goes on as another."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from training_states import CPU, fresh, saved, trained, update

from trainables.checkpoints.restoring import restore
from trainables.checkpoints.snapshot import take
from trainables.checkpoints.storing import read
from trainables.training_state import precision
from trainables.training_state.loop_state import TrainingState


def same(one: TrainingState, other: TrainingState) -> bool:
    left, right = take(one), take(other)
    assert left.tensors.keys() == right.tensors.keys()
    assert left.values == right.values
    return all(torch.equal(value, right.tensors[name]) for name, value in left.tensors.items())


def test_everything_comes_back_bit_by_bit_and_trains_on_so(tmp_path):
    state, again = trained(), fresh()
    restore(read(saved(tmp_path, state)), again)
    assert same(state, again)
    assert again.optimizer.state[again.model.first.weight]["step"] == 3
    assert (again.model.word, again.loop_state.lr_backoff) == ("learned", 0.25)
    assert (again.scaler.get_scale(), again.plateau.waited, again.average.updates) == (128.0, 2, 3)
    assert again.spike_detector == state.spike_detector
    update(state, 4)
    update(again, 4)
    assert same(state, again)


def test_the_orders_values_win_over_the_restored_ones(tmp_path):
    checkpoints = saved(tmp_path, trained(lr=0.1, weight_decay=0.5, betas=(0.8, 0.9)))
    state = fresh(lr=0.003, weight_decay=0.01, betas=(0.9, 0.99))
    restore(read(checkpoints), state)
    group = state.optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.003, 0.01, (0.9, 0.99))


def test_averaging_that_begins_later_begins_at_the_restored_weights(tmp_path):
    state = trained()
    checkpoints = saved(tmp_path, replace(state, average=None, plateau=None))
    again = fresh()
    restore(read(checkpoints), again)
    assert again.average.updates == 0
    with again.average.applied():
        assert torch.equal(again.model.first.weight, state.model.first.weight)
        assert torch.equal(again.model.norm.running_mean, state.model.norm.running_mean)
    restore(read(saved(tmp_path, state)), without := replace(fresh(), average=None))
    assert torch.equal(without.model.first.weight, state.model.first.weight)


def test_another_precision_may_go_on_from_a_checkpoint(tmp_path):
    scaler = precision.scaler("32-true", CPU, lambda values: values)
    checkpoints = saved(tmp_path, replace(trained(), scaler=scaler))
    state = fresh()
    state.model.double()
    restore(read(checkpoints), state)
    assert state.scaler.get_scale() == 2.0**16
    assert state.optimizer.state[state.model.first.weight]["exp_avg"].dtype == torch.float64


def test_a_checkpoint_of_another_optimizer_or_model_is_refused(tmp_path):
    checkpoints = saved(tmp_path, trained())
    with pytest.raises(ValueError, match="holds the state of AdamW, this order trains with SGD"):
        restore(read(checkpoints), fresh(kind=torch.optim.SGD))
    with pytest.raises(ValueError, match=r"model.first.weight is \(4, 3\) in it, \(5, 3\) here"):
        restore(read(checkpoints), fresh(width=5))
    other = fresh()
    other.model.add_module("head", nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"of another model: it lacks model\.head\.weight"):
        restore(read(checkpoints), other)
    with pytest.raises(ValueError, match=r"it has model\.head\.weight too"):
        restore(read(saved(tmp_path, other)), fresh())


class Growing(torch.optim.SGD):
    """An optimizer that keeps state in its groups: an estimate, a count, a tensor, a late entry."""

    def __init__(self, params, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay)
        for group in self.param_groups:
            group |= {"d": 1e-6, "k": 0, "weight_sum": torch.zeros(())}

    def step(self, closure=None):
        for group in self.param_groups:
            group["d"] *= 1.5
            group["k"] += 1
            group["weight_sum"] = group["weight_sum"] + group["d"]
            group["longest"] = max(group.get("longest", 0.0), group["d"])
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.data.add_(weight.grad, alpha=-group["lr"] * group["d"] * 1e4)


def test_state_that_an_optimizer_keeps_in_its_groups_comes_back(tmp_path):
    """Schedule-free's and Prodigy's began afresh at every resume and every promotion."""
    state, again = fresh(kind=Growing), fresh(kind=Growing, lr=0.3, weight_decay=0.2)
    update(state, 3)
    restore(read(saved(tmp_path, state)), again)
    group = again.optimizer.param_groups[0]
    assert (group["k"], group["lr"], group["weight_decay"]) == (3, 0.3, 0.2)
    assert "longest" in group
    again.optimizer.param_groups[0]["lr"] = 0.1
    update(state, 2)
    update(again, 2)
    assert again.optimizer.param_groups[0]["d"] == state.optimizer.param_groups[0]["d"]
    assert same(state, again)


def test_a_rollback_takes_back_what_an_optimizer_changed_in_its_groups():
    state = fresh(kind=Growing)
    before = take(state).copied()
    update(state, 2)
    restore(before, state)
    group = state.optimizer.param_groups[0]
    assert (group["k"], group["d"], float(group["weight_sum"])) == (0, 1e-6, 0.0)
    assert "longest" not in group
