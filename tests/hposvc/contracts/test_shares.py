"""Shares that add up to a total, from the spec to the trainable, and in what is said afterwards."""

import json
import re
import sys
from math import fsum
from pathlib import Path

import optuna
import pytest
import yaml
from command_line import run
from pages import fenced

from hposvc import Sweep
from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import Ordered
from hposvc.journal.home import Home
from trainables.programs.arguments import render

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "mixtures.md"
CODE = """
import tempfile
from dataclasses import dataclass

def loss(mix, step):
    return abs(mix["web"] - 0.4) / step + mix["books"]

def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": loss(params["mix"], step)})

@dataclass(frozen=True)
class Net:
    mix: dict[str, float]
    experts: dict[str, int]

    def train(self, worker):
        assert sum(self.experts.values()) == 8
        worker.restore()
        for step in worker.steps():
            folder = tempfile.mkdtemp()
            worker.report(step, {"loss": loss(self.mix, step)}, checkpoint=folder)

def curve(params, step):
    mix = {name: params[f"mix.{name}"] for name in ("web", "code", "books")}
    return {"loss": loss(mix, step)}, 1.0
"""
NAMES = ["mix.web", "mix.code", "mix.books"]
MIX = {"shares": ["web", "code", "books"], "zeros": True}
EXPERTS = {"shares": 3, "total": 8, "step": 1}
SECTIONS = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"mix": MIX},
    "initial": [{"mix": {"web": 0.5, "code": 0.5, "books": 0}}, {"mix.code": 0.25}],
    "fidelity": {"max": 2},
    "engine": "local",
    "tracking": {"send_to": []},
    "trials": {"max": 9, "parallel": 2},
}


@pytest.fixture
def code(tmp_path):
    (tmp_path / "nets.py").write_text(CODE)
    return f"{tmp_path}/nets.py"


def test_a_sweep_trains_mixtures(code, tmp_path, capfd):
    home = tmp_path / "home"
    result = Sweep(f"{code}:train", search="gp", **SECTIONS).run(home, progress=False)
    assert result.state == "COMPLETED"
    rows = result.trials[NAMES].to_numpy()
    assert rows.shape == (9, 3)
    assert rows.sum(axis=1) == pytest.approx([1.0] * 9)
    assert rows[0].tolist() == [0.5, 0.5, 0.0]
    assert rows[1, 1] == 0.25

    best, file = result.best, tmp_path / "study.db"
    for words in (
        ["export", result.sweep, "--format", "optuna", "--out", f"{file}"],
        ["report", result.sweep, "--format", "md", "--out", f"{tmp_path / 'report.md'}"],
        ["repro", result.sweep, best.trial],
        ["audit", result.sweep, best.trial],
    ):
        assert run(capfd, *words, "--home", home).code == 0
    study = optuna.load_study(study_name=result.sweep, storage=f"sqlite:///{file}")
    assert study.best_params == {name: best.params[name] for name in NAMES}
    report = (tmp_path / "report.md").read_text()
    assert "| trial | loss | mix.web | mix.code | mix.books |" in report
    assert f"The best trial, {best.trial}, has " in report

    asked = ["propose", result.sweep, "--home", home, "-o", "json", "--set", "mix.web=0.3"]
    answer = json.loads(run(capfd, *asked, "--set", "mix.books=0").out)
    assert answer["params"] == {"mix.web": 0.3, "mix.code": 0.7, "mix.books": 0}


def test_a_population_moves_mixtures(code, tmp_path):
    scheduler = {"type": "pbt", "interval": 1, "mutate": {"mix": {}, "experts": 1.5}}
    sections = {**SECTIONS, "scheduler": {**scheduler, "quantile": 0.5, "resample": 0.1}}
    sections["parameters"] = {"mix": MIX, "experts": EXPERTS}
    sections |= {"fidelity": {"max": 4}, "trials": {"max": 6}}
    home = Home.of(tmp_path / "home")
    result = Sweep(f"{code}:Net", **sections).run(home.path, progress=False)
    assert result.state == "COMPLETED"
    events = [event for _, event in home.journal().read(result.sweep)]
    orders = [event.order for event in events if isinstance(event, Ordered)]
    moved = [order.params for order in orders if order.parent and order.parent != order.trial]
    assert moved
    for params in moved:
        assert fsum(params[name] for name in NAMES) == pytest.approx(1.0, rel=1e-12)
        assert sum(params[f"experts.s{number}"] for number in (1, 2, 3)) == 8


def test_a_simulated_sweep_draws_mixtures(code, tmp_path):
    sections = {**SECTIONS, "engine": {"type": "simulate", "curve": f"{code}:curve"}}
    sections |= {"scheduler": "asha", "fidelity": {"max": 9}, "trials": {"max": 30}}
    result = Sweep(None, search="random", **sections).run(tmp_path / "home", progress=False)
    rows = result.trials[NAMES].to_numpy()
    assert rows.sum(axis=1) == pytest.approx([1.0] * 30)
    assert (rows == 0).any(axis=0).all()
    assert (rows > 0).any(axis=0).all()


def test_a_later_sweep_over_more_sources_learns_from_an_earlier_one(code, tmp_path):
    home = tmp_path / "home"
    few = {**SECTIONS, "parameters": {"mix": {"shares": ["web", "code"]}}, "initial": []}
    (tmp_path / "few.py").write_text(
        "def train(params, worker):\n"
        "    for step in worker.steps():\n"
        "        worker.report(step, {'loss': abs(params['mix']['web'] - 0.4)})\n"
    )
    first = Sweep(f"{tmp_path}/few.py:train", search="random", **few).run(home, progress=False)
    more = {"warm_start": {"from": first.sweep, "top": 1}, "initial": [], "trials": {"max": 1}}
    second = Sweep(f"{code}:train", **{**SECTIONS, **more}).run(home, progress=False)
    assert second.best.params["mix.books"] == 0
    assert second.best.params["mix.web"] == first.best.params["mix.web"]


def test_a_program_gets_a_mixture_as_json_and_one_by_one(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import json, sys\n"
        "mix = json.loads(sys.argv[1].removeprefix('--mix='))\n"
        "rest = [float(item.partition('=')[2]) for item in sys.argv[2:]]\n"
        "assert rest == [*mix.values()], (rest, mix)\n"
        "print('loss=', sum(mix.values()) - 1, sep='')\n"
    )
    command = [sys.executable, f"{script}", "--mix=${mix}", "${args}"]
    collect = {"stdout": "loss=(?P<loss>.+)"}
    sections = {**SECTIONS, "fidelity": None, "trials": {"max": 2}}
    result = Sweep(command=command, collect=collect, **sections).run(
        tmp_path / "home", progress=False
    )
    assert result.state == "COMPLETED"
    assert result.trials["value"].abs().max() < 1e-9


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_items_of_a_command_are_shares_too(engine):
    command = ["echo", "${mix.web}", "${mix.code}", "${mix.books}"]
    base = {**SECTIONS, "engine": engine, "fidelity": None, "collect": {"stdout": "(?P<loss>x)"}}
    spec = specs.load({**base, "command": command})
    params = {"mix.web": 0.25, "mix.code": 0.75, "mix.books": 0.0}
    assert render(spec.command, params, {}) == ["echo", "0.25", "0.75", "0.0"]
    with pytest.raises(SpecError, match=re.escape("put '${args}' or '${mix}' into it")) as caught:
        specs.load({**base, "command": ["echo"]})
    assert len(caught.value.problems) == 1
    with pytest.raises(SpecError, match=re.escape("mix.shares[2]: never reaches the command")):
        specs.load({**base, "command": command[:-1]})
    with pytest.raises(
        SpecError, match=re.escape("has ${mx}: no such parameter; did you mean 'mix'")
    ):
        specs.load({**base, "command": ["echo", "${mx}"]})


def test_a_baseline_is_given_like_an_initial_point():
    baseline = {"seeds": 2, "params": {"mix": {"web": 0.2, "code": 0.8}}}
    given = {**SECTIONS, "trainable": "nets:train"}
    (first, *_) = specs.load({**given, "baseline": baseline}).first_points
    assert first == {"mix": {"web": 0.2, "code": 0.8}}
    baseline["params"]["mix"]["code"] = 0.9
    with pytest.raises(SpecError, match=r"the shares add up to 1\.1; they must add up to 1"):
        specs.load({**given, "baseline": baseline})


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Work in a folder with the files of the page, and return its other blocks by their words."""
    text = PAGE.read_text(encoding="utf-8")
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", text, re.M | re.S):
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    return lambda words: next(block for _, block in fenced(text) if words in block)


def test_the_sweep_of_the_page_runs(page, capfd):
    for line in page("hposvc run").splitlines():
        words = line.split()[1:]
        ended = run(capfd, *words, *(["--set", "tracking.send_to=[]"] * (words[0] == "run")))
        assert ended.code == 0, ended.err
    assert "mix.web=0.3" in ended.out
    assert "Shares" in Path("mixture.html").read_text()
    exec(compile(page("import optuna"), "known.py", "exec"), {})
    known = capfd.readouterr().out.strip().splitlines()[-1]
    learns = ["--set", f"warm_start={{from: {known}, top: 1}}", "--set", "trials.max=2"]
    assert run(capfd, "run", "mixture.yaml", "--set", "tracking.send_to=[]", *learns).code == 0
    (first, second) = json.loads(run(capfd, "trials", "last", "-o", "json").out)
    assert [*first["params"].values()] == [0.5, 0.2, 0.1, 0.2]
    assert second["params"]["mix.web"] == pytest.approx(0.7 / 1.01)
    assert second["params"]["mix.books"] == 0


def test_the_other_blocks_of_the_page_are_right(page, capfd):
    base = {**SECTIONS, "trainable": "train.py:train", "initial": []}
    whole = yaml.safe_load(page("experts:"))
    assert specs.load({**base, **whole}).space.shares[0].whole
    moved = yaml.safe_load(page("type: pbt"))
    assert specs.load({**base, **moved, "fidelity": {"max": 4}}).scheduler.name == "pbt"
    exec(compile(page("import Space"), "searchers.py", "exec"), {})
    assert 0 <= float(capfd.readouterr().out) <= 0.9
