"""Tied parameters from the spec to the trainable, and in what is said of the sweep afterwards."""

import json
import re
import sys
from pathlib import Path

import optuna
import pytest
import yaml
from command_line import run

from hposvc import Sweep
from hposvc import spec as specs
from hposvc.errors import SpecError
from trainables.programs.arguments import render

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "your-code.md"
SIZES = [
    {"layers": 2, "width": 64, "name": "small"},
    {"layers": 8, "width": 256, "name": "middle"},
    {"layers": 8, "width": 512, "name": "large"},
]
CODE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Net:
    layers: int
    width: int
    name: str
    lr: float
    deep: float = 0.0

    def train(self, worker):
        for step in worker.steps():
            loss = self.layers * self.lr + 1 / self.width + self.deep
            worker.report(step, {"loss": loss, "size": self.layers * 1000 + self.width})
"""
SECTIONS = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {
        "size": {"values": SIZES},
        "lr": {"min": 1e-4, "max": 0.1, "log": True},
        "deep": {"min": 0.0, "max": 1.0, "when": {"layers": 8}},
    },
    "initial": [{"name": "large"}],
    "fidelity": {"max": 2},
    "engine": "local",
    "tracking": {"send_to": []},
    "trials": {"max": 9, "parallel": 2},
}


@pytest.fixture
def net(tmp_path):
    (tmp_path / "nets.py").write_text(CODE)
    return f"{tmp_path}/nets.py:Net"


def members(params):
    return {name: params[name] for name in SIZES[0]}


@pytest.mark.parametrize(
    "search", ["gp", *(pytest.param(name, marks=pytest.mark.full) for name in ("tpe", "random"))]
)
def test_a_sweep_trains_what_is_tied(net, search, tmp_path, capfd):
    home = tmp_path / "home"
    result = Sweep(net, search=search, **SECTIONS).run(home, progress=False)
    assert result.state == "COMPLETED"
    frame = result.trials
    rows = frame[list(SIZES[0])].to_dict("records")
    assert rows[0] == SIZES[2]
    assert all(row in SIZES for row in rows)
    assert list(frame["deep"].isna()) == [row["layers"] == 2 for row in rows]
    best = result.best
    assert members(best.params) in SIZES
    assert best.params.keys() - {"deep"} == {*SIZES[0], "lr"}, "as the trainable takes them"

    file = tmp_path / "study.db"
    for words in (
        ["export", result.sweep, "--format", "optuna", "--out", f"{file}"],
        ["report", result.sweep, "--format", "md", "--out", f"{tmp_path / 'report.md'}"],
        ["repro", result.sweep, best.trial],
        ["audit", result.sweep, best.trial],
    ):
        assert run(capfd, *words, "--home", home).code == 0
    study = optuna.load_study(study_name=result.sweep, storage=f"sqlite:///{file}")
    assert study.best_params == best.params
    assert "| trial | loss | layers | width | name |" in (tmp_path / "report.md").read_text()


def test_a_later_sweep_learns_from_tied_values(net, tmp_path):
    home = tmp_path / "home"
    first = Sweep(net, search="random", **SECTIONS).run(home, progress=False)
    again = {"warm_start": {"from": first.sweep, "top": 1}, "initial": [], "trials": {"max": 1}}
    tied = Sweep(net, **{**SECTIONS, **again}).run(home, progress=False)
    assert tied.best.params == first.best.params


@pytest.mark.parametrize(
    "items", [["${args}"], ["--layers=${layers}", "${width}", "${name}", "${lr}"]]
)
def test_a_command_gets_the_members(items):
    command = [sys.executable, "-c", "pass", *items]
    parameters = {name: SECTIONS["parameters"][name] for name in ("size", "lr")}
    sections = {**SECTIONS, "parameters": parameters, "engine": "local"}
    spec = specs.load({**sections, "command": command, "collect": {"stdout": "(?P<loss>x)"}})
    params = {**SIZES[0], "lr": 0.5}
    written = render(spec.command[3:], params, {})
    assert written[0] == "--layers=2"
    assert "size" not in " ".join(written)


def test_a_member_without_a_field_is_said_with_its_line(net, tmp_path):
    parameters = {"size": {"values": [{**size, "depth": 1} for size in SIZES]}}
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({**SECTIONS, "parameters": parameters, "trainable": net}))
    with pytest.raises(SpecError) as caught:
        specs.check(file)
    assert re.search(
        r"sweep.yaml:\d+:\d+: parameters.size.values\[0\].depth: Net has no such field",
        str(caught.value),
    )


def test_a_training_option_may_be_a_member():
    sizes = [
        {"name": "a", "training.precision": "bf16-mixed", "batch": 256},
        {"name": "b", "training.precision": "32-true", "batch": 64},
    ]
    base = {**SECTIONS, "initial": [], "trainable": "nets:Net"}
    spec = specs.load({**base, "parameters": {"size": {"values": sizes}}})
    assert spec.space.searched == ("name",)
    sizes[1]["training.precision"] = "64-bit"
    with pytest.raises(SpecError, match=r"size.values\[0\].training.precision"):
        specs.load({**base, "parameters": {"size": {"values": sizes}}})


def test_pbt_changes_the_key_alone():
    scheduler = {"type": "pbt", "interval": 1, "mutate": {"layers": {}}}
    sections = {**SECTIONS, "initial": [], "trainable": "nets:Net", "scheduler": scheduler}
    with pytest.raises(SpecError, match="takes its value with width; name width here instead"):
        specs.load(sections)
    specs.load({**sections, "scheduler": {**scheduler, "mutate": {"width": {}}}})


def test_the_page_is_right(tmp_path, capfd):
    section = PAGE.read_text().split("## Values that go together: tied")[1].split("\n## ")[0]
    (sweep,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (tmp_path / "train.py").write_text(code)
    (tmp_path / "sweep.yaml").write_text(sweep)
    sets = {"engine": "local", "tracking.send_to": []}
    spec = specs.check(tmp_path / "sweep.yaml", sets)
    assert spec.space.searched == ("name", "lr")
    home = f"{tmp_path / 'home'}"
    words = [f"--set={key}={json.dumps(value)}" for key, value in sets.items()]
    assert run(capfd, "run", tmp_path / "sweep.yaml", "--home", home, *words).code == 0
