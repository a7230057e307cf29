"""Checks of a spec that import the user's code."""

import json
import sys

import pytest

from hposvc.errors import SpecError
from hposvc.spec import check, registry
from hposvc.spec import load as load_spec
from hposvc.spec.user_code import forbid_user_code
from trainables import load

SMALL = {
    "trainable": "my_code:Net",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "trials": {"max": 8},
}


def small(**changes):
    return {**SMALL, **changes}


def test_check_imports_the_trainable_and_the_curve(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "checked_code.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass Net:\n    lr: float = 0.1\n"
        "    def train(self, worker): ...\n"
        "def curve(params, step): return {'loss': 1.0}, 1.0\n"
    )
    assert check(SMALL, {"trainable": "checked_code:Net"}).trainable == "checked_code:Net"
    path = tmp_path / "sweep.yaml"
    misnamed = small(trainable="checked_code:Net", parameters={"rl": 0.1})
    path.write_text(json.dumps(misnamed, indent=1))
    with pytest.raises(SpecError, match=r"sweep\.yaml:8:3: parameters\.rl: Net has no such field"):
        check(path)
    simulated = small(trainable=None, engine={"type": "simulate", "curve": "checked_code:curve"})
    assert check(simulated).engine.curve == "checked_code:curve"
    with pytest.raises(SpecError, match=r"engine\.curve: checked_code has no such name"):
        check(simulated, {"engine.curve": "checked_code:curv"})
    with pytest.raises(SpecError, match=r"engine\.curve: checked_code:__name__ is no function"):
        check(simulated, {"engine.curve": "checked_code:__name__"})


CODE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Net:
    lr: float = 0.1
    def train(self, worker): ...

@dataclass(frozen=True)
class Deep:
    lr: float
    layers: int
    def train(self, worker): ...

class Old:
    def train(self, worker): ...

def function(params, worker): ...
number = 3
"""


@pytest.fixture
def coded(tmp_path, monkeypatch):
    """Write a user's module, and one whose import fails."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "coded.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("import math\n\nmath.sqrt(-1)\n")


@pytest.mark.usefixtures("coded")
@pytest.mark.parametrize("trainable", ["coded:Net", "coded:function"])
def test_a_trainable_is_a_dataclass_or_a_function(trainable):
    check(small(trainable=trainable, fidelity={"max": 9}))


@pytest.mark.usefixtures("coded")
@pytest.mark.parametrize(
    ("trainable", "message"),
    [
        ("codde:Net", "trainable: "),
        ("coded:number", "trainable: "),
        ("missing/file.py:Net", "trainable: "),
        (
            "coded:Old",
            "trainable: coded:Old must be a frozen dataclass with train(self, worker)",
        ),
        ("broken:Net", "trainable: broken fails when it is imported: ValueError"),
        ("coded:Deep", "parameters: field layers of Deep has no default; add a parameter"),
    ],
)
def test_an_unsuitable_trainable_is_refused_with_the_reason(trainable, message):
    with pytest.raises(SpecError) as refusal:
        check(small(trainable=trainable))
    assert message in str(refusal.value)


@pytest.mark.usefixtures("coded")
def test_only_a_class_with_a_worker_can_do_other_than_stop_at_nan():
    """Any other trainable would silently ignore `failure.nan`."""
    check(small(trainable="coded:Net", failure={"nan": "rollback"}))
    check(small(trainable="coded:function", failure={"nan": "stop"}))
    with pytest.raises(SpecError) as refusal:
        check(small(trainable="coded:function", failure={"nan": "skip"}))
    assert str(refusal.value).endswith(
        "failure.nan: is skip, but coded:function makes its updates itself; write nan: stop, "
        "or give a Task"
    )


DIGITS = "trainables.zoo.digits:DigitsCNN"
COUNTED = {"unit": "token", "min": "20k", "max": "540k"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fidelity": {**COUNTED, "unit": "tokens"}}, "did you mean 'token'?"),
        ({"fidelity": {"unit": "update", "min": 1, "max": 540}}, "leave min out"),
        ({"fidelity": COUNTED, "training": {"trials_per_process": 4}}, "write unit: epoch"),
        ({"trainable": "coded:function", "fidelity": {"max": 9, "every": 3}}, "leave it out"),
    ],
)
@pytest.mark.usefixtures("coded")
def test_a_length_that_the_trainable_does_not_know_is_refused(changes, message):
    with pytest.raises(SpecError, match=r"fidelity") as refusal:
        check(small(**{"trainable": DIGITS, **changes}))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("fidelity", "interval"),
    [
        ({"max": 27}, 1),
        ({"unit": "epoch/10", "max": 27, "every": 3}, 3),
        (COUNTED, 20_000),
        ({**COUNTED, "every": "5k"}, 5_000),
    ],
)
def test_a_task_reports_every_so_many_steps(fidelity, interval):
    spec = check(small(trainable=DIGITS, fidelity=fidelity))
    assert spec.fidelity.interval == interval


def test_a_process_that_serves_others_imports_no_code_of_users(tmp_path, monkeypatch):
    (tmp_path / "theirs.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(load, "packages_allowed", None)
    forbid_user_code()
    before = list(sys.path)
    for reference in ("theirs:f", f"{tmp_path}/theirs.py:f", "hposvc.__main__:main", "os:getcwd"):
        with pytest.raises(ValueError, match="imports no code of users"):
            registry.resolve_function(reference)
        with pytest.raises(ValueError, match="imports no code of users"):
            load.resolve(reference)
    with pytest.raises(ValueError, match="imports no code of users"):
        load.resolve(f"pickle:{tmp_path}/x.pkl")
    plug_in = registry.PlugIn("theirs:Searcher")
    assert not registry.trait(registry.SEARCHERS, plug_in, "uses_results")
    with pytest.raises(SpecError, match="imports no code of users"):
        registry.build(registry.SEARCHERS, plug_in)
    plugged = {"search": "theirs:Searcher", "scheduler": "theirs:Rule", "fidelity": {"max": 9}}
    load_spec(small(trainable="theirs:f", folder=f"{tmp_path}", **plugged))
    assert registry.resolve("hposvc.schedulers.asha:Asha").__name__ == "Asha"
    assert registry.build(registry.SEARCHERS, registry.PlugIn("random")) is not None
    assert sys.path == before
    assert "theirs" not in sys.modules


CHANGED = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Net:
    lr: float = 0.1
    width: int = 64
    act: str = "relu"
    def train(self, worker): ...

def train(params, worker): ...
"""


@pytest.mark.parametrize(
    ("trainable", "changed", "message"),
    [
        ("Net", {"width": 512}, None),
        ("Net", {"lr": 5, "act": "tanh", "training.clip": 1.0}, None),  # beyond its range
        ("Net", {"widht": 512}, r"finalists\.set\.widht: Net has no such field; .*'width'"),
        ("Net", {"width": 0.5}, r"finalists\.set\.width: is 0\.5, and the field's default is 64"),
        ("Net", {"lr": "big"}, r"finalists\.set\.lr: is 'big', and parameter lr has values like"),
        ("Net", {"training.clpi": 1.0}, r"finalists\.set: training\.clpi is no training option"),
        ("Net", {"training.momentum": 0.5}, r"only the optimizers sgd and lars have one"),
        ("train", {"lr": 0.2}, None),
        ("train", {"width": 512}, r"finalists\.set\.width: is no parameter of the sweep"),
    ],
)
def test_values_for_finalists_are_parameters_or_fields_of_their_kind(
    tmp_path, monkeypatch, trainable, changed, message
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "changed_code.py").write_text(CHANGED)
    path = tmp_path / "sweep.yaml"
    spec = small(trainable=f"changed_code:{trainable}", finalists={"set": changed})
    path.write_text(json.dumps(spec, indent=1))
    if message is None:
        assert check(path).finalists.set == changed
    else:
        with pytest.raises(SpecError, match=rf"sweep\.yaml:\d+:\d+: .*{message}"):
            check(path)


def test_a_simulation_has_no_other_values_for_finalists_than_its_parameters():
    simulated = small(trainable=None, engine={"type": "simulate", "curve": "x:y"})
    with pytest.raises(SpecError, match=r"finalists\.set\.width: is no parameter of the sweep"):
        load_spec(simulated, {"finalists": {"set": {"width": 3}}})
    with pytest.raises(SpecError, match=r"finalists\.set: is not what a baseline measures"):
        load_spec(
            simulated, {"finalists": {"set": {"lr": 0.3}}, "baseline": {"params": {"lr": 0.1}}}
        )


DATASETS = {
    "one": "def train(params):\n    return 1\n",
    "two": "def train(params, more):\n    return 1\n",
    "none": "",
    "broken": "import nowhere_at_all\n",
}


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("none", "datasets.train: .*none.py has no train"),
        ("two", r"datasets.train: .* takes \(params, more\); let it take the trial's parameters"),
        ("broken", "datasets.train: .*No module named 'nowhere_at_all'"),
        ("gone", "datasets.train: .*there is no file .*gone.py"),
    ],
)
def test_functions_that_make_datasets_are_looked_at(tmp_path, file, message):
    for name, text in DATASETS.items():
        (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(SpecError, match=message):
        check(datasets_spec(train=f"{tmp_path / file}.py:train"))
    check(datasets_spec(train=f"{tmp_path / 'one'}.py:train"))


def datasets_spec(sections=None, **datasets):
    return {
        "trainable": "toys:steady",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
        "trials": {"max": 2},
        "resources": {"workers": 2, "cpus_per_worker": 1},
        "datasets": datasets,
        **(sections or {}),
    }


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"engine": "local"}, "is Ray Data's, which works on a cluster, and engine is local"),
        (
            {"resources": {"cpus_per_worker": 1}},
            "cpus_per_worker: is 1: .* give cpus_per_worker: 2 or more",
        ),
        (
            {"resources": {"workers": 4, "cpus_per_worker": 0.4}},
            "is 0.4: .* give cpus_per_worker: 0.5 or more",
        ),
        ({"trainable": None, "command": ["true"]}, "datasets: is for a trainable"),
    ],
)
def test_datasets_need_a_cluster_cpus_and_a_trainable(sections, message):
    with pytest.raises(SpecError, match=message):
        load_spec(datasets_spec(sections, train="toys:steady"))
