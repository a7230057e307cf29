"""Define-by-run spaces: a function is called once, and its suggestions are frozen."""

import json
import sys

import pytest

from hposvc import Sweep
from hposvc.errors import SpecError
from hposvc.spec import dump, load, restore
from searchers import Choice, Constant, Float

CODE = """
def space(trial):
    if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
        trial.suggest_float("momentum", 0.0, 0.99)

def curve(params, step):
    return {"loss": params.get("momentum", 1.0)}, 1.0

def looks(trial):
    return trial.suggest_float("lr", 0, 1) > 0.5

def itself(trial):
    trial.suggest_float("space", 0, 1)

number = 3
"""
SMALL = {
    "engine": {"type": "simulate", "curve": "suggesting:curve"},
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"space": "suggesting:space"},
    "trials": {"max": 6},
    "tracking": {"send_to": []},
}
SPACE = {
    "optimizer": Choice(("sgd", "adam")),
    "momentum": Float(0, 0.99, when={"optimizer": ("sgd",)}),
}


@pytest.fixture(autouse=True)
def code(tmp_path, monkeypatch):
    (tmp_path / "suggesting.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("suggesting", None)


def refusal(**parameters):
    with pytest.raises(SpecError) as caught:
        load({**SMALL, "parameters": parameters})
    return str(caught.value)


def local(trial):
    trial.suggest_float("x", 0, 1)


def test_a_space_function_is_named_by_its_module_or_its_file(tmp_path):
    assert dict(load(SMALL).space) == SPACE
    in_file = {"parameters.space": f"{tmp_path}/suggesting.py:space"}
    assert dict(load(SMALL, in_file).space) == SPACE


def test_a_frozen_spec_does_not_need_the_module(tmp_path):
    frozen = json.loads(json.dumps(dump(load(SMALL))))
    (tmp_path / "suggesting.py").unlink()
    sys.modules.pop("suggesting")
    assert load(frozen) == restore(frozen)
    assert dict(restore(frozen).space) == SPACE
    assert restore(frozen).tags == {"hposvc.space": "suggesting:space"}


def test_parameters_beside_the_function_override_its_suggestions():
    spec = load(SMALL, {"parameters.width": 64, "parameters.momentum": 0.9})
    assert dict(spec.space) == {
        "optimizer": Choice(("sgd", "adam")),
        "momentum": Constant(0.9),
        "width": Constant(64),
    }


def test_a_space_may_be_a_function_instead_of_its_name(tmp_path):
    spec = load({**SMALL, "parameters": {"space": local}, "tags": {"team": "a"}})
    assert dict(spec.space) == {"x": Float(0, 1)}
    assert spec.tags["team"] == "a"
    assert spec.tags["hposvc.space"].endswith("test_define_by_run:local")
    sections = {**SMALL, "parameters": {"space": lambda trial: local(trial), "k": 3}}
    result = Sweep(**sections).run(home=tmp_path, progress=False)
    assert set(result.trials.k) == {3}
    assert result.trials.x.between(0, 1).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("suggesting:spaec", "suggesting has no such name; did you mean 'space'?"),
        ("suggestin:space", "there is no module suggestin; install it, or set folder to where"),
        ("suggesting:number", "suggesting:number is no function"),
        ("suggesting:looks", "looks() looks at the value of lr, which is continuous; what is"),
        ("suggesting:itself", "suggesting:itself suggests 'space', which is the key here; rename"),
        ("no/such.py:space", "there is no file /"),
        ("linear", "is 'linear'; write module:function or path/to/file.py:function, for a const"),
    ],
)
def test_an_error_of_a_function_is_reported_at_the_key(given, message):
    assert refusal(space=given).startswith(f"spec: parameters.space: {message}")
