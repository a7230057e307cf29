"""One sweep over sizes on each engine: small models search, the largest one comes last."""

import pytest
import sized_sweeps
from agent_clients import Client, Crewed, Worker
from agent_sweeps import agents_spec, backend_on, quick_store
from command_line import run
from invariants import check
from simulated_sweeps import Lab
from sized_sweeps import PARAMETERS, SCALE, WIDTHS, above, best_lr, sized_spec

from hposvc import Sweep, load
from hposvc.analysis.size_search import judge
from hposvc.errors import Interrupted
from hposvc.journal.journal import Journal

FUNCTION = """
import math

def train(params, worker):
    off = math.log10(params["lr"]) + 2 + math.log2(params["width"] / 256) / 3
    worker.report(1, {"loss": 3 * (params["width"] / 256) ** -0.1 + 0.05 * off**2})
"""
TASK = """
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import mse_loss

from trainables import Data, Task, Tensors


@dataclass(frozen=True)
class Net(Task):
    width: int = 4
    lr: float = 0.01
    batch: int = 20

    def build_model(self):
        return nn.Sequential(nn.Linear(2, self.width), nn.Tanh(), nn.Linear(self.width, 1))

    def load_data(self):
        x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0))
        y = x.sin().sum(1, keepdim=True)
        return Data(Tensors(x[:80], y[:80]), Tensors(x[80:], y[80:]))

    def compute_losses(self, model, batch):
        x, y = batch
        return mse_loss(model(x), y, reduction="none").mean(1)
"""


@pytest.fixture
def local(tmp_path, monkeypatch):
    """Return a function that runs a sweep of processes of this machine."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text(FUNCTION)
    (tmp_path / "net.py").write_text(TASK)
    base = {
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": PARAMETERS["lr"]},
        "search": "random",
        "engine": "local",
        "tracking": {"send_to": []},
    }

    def carry_out(**sections):
        return Sweep(**{**base, **sections}).run(tmp_path / "home", progress=False)

    return carry_out


@pytest.mark.parametrize("parallel", [1, 3])
def test_processes_of_this_machine_train_every_size(local, parallel):
    scale = {"over": "width", "from": 256, "to": 1024}
    result = local(trainable="code.py:train", scale=scale, trials={"max": 16, "parallel": parallel})
    assert result.state == "COMPLETED"
    widths = result.trials.width.tolist()
    assert widths[:11] == [256] * 11
    assert set(widths[11:15]) == {512}
    assert widths[15:] == [1024]
    assert result.best.params["width"] == 1024
    assert above({**result.best.params, "decay": 0.1}, best_lr(1024)) < 0.02


def test_a_task_trains_as_many_tokens_as_its_weights_need(local, tmp_path, caplog):
    result = local(
        trainable="net.py:Net",
        metric={"name": "val/loss", "goal": "minimize"},
        parameters={"lr": {"min": 1e-3, "max": 1e-1, "log": True}},
        scale={"over": "width", "from": 4, "to": 16, "tokens_per_weight": 10},
        fidelity={"unit": "token", "max": 100_000},
        training={"optimizer": "adamw", "schedule": "cosine"},
        trials={"max": 13, "parallel": 1},
    )
    assert result.state == "COMPLETED"
    weights = {width: 4 * width + 1 for width in (4, 8, 16)}
    for row in result.trials.itertuples():
        assert row.state == "COMPLETED"
        assert row.step == 10 * weights[row.width]
    assert set(result.trials.width) == {4, 8, 16}
    assert result.best.checkpoint is not None
    assert "fidelity.max" not in caplog.text, "a trial that ends where it should needs no warning"
    findings = load(result.sweep, tmp_path / "home").why()
    assert not any("to its end" in finding["title"] for finding in findings)


@pytest.mark.parametrize("turns", [10, 20])
def test_a_simulated_sweep_goes_on_where_it_was_interrupted(tmp_path, turns):
    spec, lab = sized_spec(trials={"max": 24, "parallel": 1}), Lab.at(tmp_path)
    whole = lab.run(spec, "whole")
    left = iter([False] * turns)
    with pytest.raises(Interrupted):
        lab.run(spec, "s", interrupted=lambda: next(left, True))
    state = lab.run(spec, "s")
    check(spec, lab.events("s"))
    first, second = ([trial.params for trial in each.trials.values()] for each in (whole, state))
    assert first == second


def test_more_trials_are_planned_as_if_there_had_been_as_many(tmp_path):
    spec, lab = sized_spec(trials={"max": 20, "parallel": 1}), Lab.at(tmp_path)
    lab.run(spec)
    lab.journal.request("s", "extend", changes={"trials.max": 22})
    state = lab.run(spec)
    widths = [trial.params["width"] for trial in state.trials.values()]
    assert len(widths) == 22
    assert widths[18:20] == [2048] * 2
    assert widths[20:] == [2048] * 2


def test_agents_train_every_size(tmp_path):
    with quick_store() as store:
        spec = agents_spec(
            parameters=PARAMETERS,
            scale=SCALE,
            fidelity={"max": 1},
            trials={"max": 24, "parallel": 2},
        )
        lab = Lab(Journal(store), tmp_path)
        clients = [Client(store, "s", f"agent-{number}") for number in range(2)]
        crew = [Worker(client, sized_sweeps.following, False) for client in clients]
        lab.run(spec, "s", backend_on(store, type("OurCrew", (Crewed,), {"crew": crew})))
        state = check(spec, lab.events())
    widths = [trial.params["width"] for trial in state.trials.values()]
    assert widths[:16] == [256] * 16
    assert set(widths[16:22]) == set(WIDTHS[1:3])
    assert widths[22:] == [2048] * 2
    found = judge(state, "s")
    assert found.answer == "within"
    assert above(found.proposed, best_lr(2048)) < 0.03


def test_a_trial_of_any_size_is_trained_again_as_it_was(local, tmp_path, capfd):
    trials = {"max": 13, "parallel": 1}
    scale = {"over": "width", "from": 256, "to": 1024}
    result = local(trainable="code.py:train", scale=scale, trials=trials)
    home = tmp_path / "home"
    for trial in ("t0001", result.best.trial):
        answer = run(capfd, "repro", result.sweep, trial, "--home", home, "-o", "json")
        assert answer.code == 0, answer.err
        assert answer.data["verdict"] == "equal"


@pytest.fixture
def sized_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.py").write_text(FUNCTION)
    file = tmp_path / "sizes.yaml"
    file.write_text(
        """
        trainable: code.py:train
        metric: {name: loss, goal: minimize}
        parameters: {lr: {min: 1e-5, max: 0.1, log: true}}
        scale: {over: width, from: 256, to: 1024}
        trials: {max: 13, parallel: 1}
        engine: local
        tracking: {send_to: []}
        """
    )
    return file


def test_one_trial_is_debugged_at_the_smallest_size(sized_file, tmp_path, capfd):
    answer = run(capfd, "run", sized_file, "--debug", "--home", tmp_path / "home")
    assert answer.code == 0, answer.err
    assert "width       256" in answer.out


def test_a_pilot_trains_some_of_each_size(sized_file, tmp_path, capfd):
    answer = run(capfd, "plan", sized_file, "--pilot", "--home", tmp_path / "home", "-o", "json")
    assert answer.code == 0, answer.err
