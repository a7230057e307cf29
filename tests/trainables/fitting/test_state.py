"""If these fail, a trial goes on from another state than the one that it was in, or is lost."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from trainables.checkpoints.exporting import export
from trainables.checkpoints.restoring import restore
from trainables.checkpoints.snapshot import take
from trainables.checkpoints.storing import read, write
from trainables.fitting import precision
from trainables.fitting.divergence import Guard
from trainables.fitting.state import Marks, TrainingState
from trainables.optim.averaging import Ema
from trainables.optim.schedules import Plateau

CPU = torch.device("cpu")


class Tied(nn.Module):
    """Weights, a weight of two names, buffers, and a module that keeps a word."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.norm = nn.BatchNorm1d(width)
        self.last, self.again = nn.Linear(width, width), nn.Linear(width, width)
        self.again.weight = self.last.weight
        self.word = "none"

    def forward(self, x_BF: torch.Tensor) -> torch.Tensor:
        return self.again(self.last(self.norm(self.first(x_BF))))

    def get_extra_state(self) -> str:
        return self.word

    def set_extra_state(self, state: str) -> None:
        self.word = state


def fresh(lr: float = 0.1, kind=torch.optim.AdamW, width: int = 4, **options) -> TrainingState:
    model = Tied(width)
    return TrainingState(
        model=model,
        optimizer=kind(model.parameters(), lr=lr, **options),
        scaler=precision.scaler("16-mixed", CPU, lambda values: values),
        average=Ema(model, 0.9),
        plateau=Plateau(),
        guard=Guard("skip"),
        marks=Marks.fresh(CPU),
    )


def update(state: TrainingState, times: int) -> None:
    for number in range(times):
        torch.manual_seed(number)
        state.optimizer.zero_grad()
        state.model(torch.randn(8, 3)).square().mean().backward()
        state.optimizer.step()
        state.average.update()
        state.plateau.observe(1.0)
        state.guard.judge(1.0, 1.0)


def trained(**options) -> TrainingState:
    torch.manual_seed(7)
    state = fresh(**options)
    update(state, 3)
    state.model.word, state.marks.slower = "learned", 0.25
    state.scaler.load_state_dict({**state.scaler.state_dict(), "scale": 128.0})
    return state


def saved(folder: Path, state: TrainingState) -> Path:
    write(take(state), folder)
    return folder


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
    assert (again.model.word, again.marks.slower) == ("learned", 0.25)
    assert (again.scaler.get_scale(), again.plateau.waited, again.average.updates) == (128.0, 2, 3)
    assert again.guard == state.guard
    update(state, 4)
    update(again, 4)
    assert same(state, again)


def test_what_was_trained_before_is_forgotten(tmp_path):
    shelf = saved(tmp_path, beginning := fresh())
    state = fresh()
    update(state, 2)
    restore(read(shelf), state)
    assert same(state, beginning)
    assert not state.optimizer.state


def test_a_copy_stays_as_it_was_while_training_goes_on():
    state = trained()
    copy, before = take(state).copied(), take(state).tensors["model.first.weight"].clone()
    update(state, 1)
    assert torch.equal(copy.tensors["model.first.weight"], before)
    restore(copy, state)
    assert torch.equal(state.model.first.weight, before)


def test_the_orders_values_win_over_the_restored_ones(tmp_path):
    shelf = saved(tmp_path, trained(lr=0.1, weight_decay=0.5, betas=(0.8, 0.9)))
    state = fresh(lr=0.003, weight_decay=0.01, betas=(0.9, 0.99))
    restore(read(shelf), state)
    group = state.optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.003, 0.01, (0.9, 0.99))


def test_averaging_that_begins_later_begins_at_the_restored_weights(tmp_path):
    state = trained()
    shelf = saved(tmp_path, replace(state, average=None, plateau=None))
    again = fresh()
    restore(read(shelf), again)
    assert again.average.updates == 0
    with again.average.applied():
        assert torch.equal(again.model.first.weight, state.model.first.weight)
    restore(read(saved(tmp_path, state)), without := replace(fresh(), average=None))
    assert torch.equal(without.model.first.weight, state.model.first.weight)


def test_another_precision_may_go_on_from_a_checkpoint(tmp_path):
    scaler = precision.scaler("32-true", CPU, lambda values: values)
    shelf = saved(tmp_path, replace(trained(), scaler=scaler))
    state = fresh()
    state.model.double()
    restore(read(shelf), state)
    assert state.scaler.get_scale() == 2.0**16
    assert state.optimizer.state[state.model.first.weight]["exp_avg"].dtype == torch.float64


def test_a_checkpoint_of_another_optimizer_or_model_is_refused(tmp_path):
    shelf = saved(tmp_path, trained())
    with pytest.raises(ValueError, match="holds the state of AdamW, this order trains with SGD"):
        restore(read(shelf), fresh(kind=torch.optim.SGD))
    with pytest.raises(ValueError, match=r"model.first.weight is \(4, 3\) in it, \(5, 3\) here"):
        restore(read(shelf), fresh(width=5))
    other = fresh()
    other.model.add_module("head", nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"of another model: it lacks model\.head\.weight"):
        restore(read(shelf), other)
    with pytest.raises(ValueError, match=r"it has model\.head\.weight too"):
        restore(read(saved(tmp_path, other)), fresh())


def test_an_optimizer_of_what_no_checkpoint_would_hold_is_refused():
    state = fresh()
    state.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(5))]})
    with pytest.raises(ValueError, match=r"shape \(5,\) that is no parameter of the model"):
        take(state)


def test_an_export_is_a_plain_state_dict(tmp_path):
    state = trained()
    saved(tmp_path, state)
    for name, load in (("model.pt", torch.load), ("model.safetensors", load_file)):
        held = load(export(tmp_path, tmp_path / name))
        assert held.keys() == {*dict(state.model.named_parameters(remove_duplicate=False))} | {
            *dict(state.model.named_buffers())
        }
        assert all(torch.equal(value, held[key]) for key, value in trained_tensors(state).items())
    command = [sys.executable, "-m", "trainables.checkpoints.exporting", tmp_path, "--ema", "--to"]
    subprocess.run([*command, tmp_path / "ema.pt"], check=True)
    averaged = torch.load(tmp_path / "ema.pt")
    with state.average.applied():
        assert all(torch.equal(each, averaged[key]) for key, each in trained_tensors(state).items())
    wrong = subprocess.run([*command, "model.onnx"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "model.onnx: choose an ending of .pt, .pth, .safetensors\n",
    )


def trained_tensors(state: TrainingState) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.model.state_dict().items() if "extra" not in name}
