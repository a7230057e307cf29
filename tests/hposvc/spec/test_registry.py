"""Plug-ins by name and by module:Class, their options, and the requirements on a trainable."""

import pytest

from hposvc.errors import SpecError
from hposvc.spec.registry import (
    SCHEDULERS,
    SEARCHERS,
    PlugIn,
    build,
    check_trainable,
    check_updates,
    read,
    resolve,
)
from searchers.space import Space

SPACE = Space.from_dict({"lr": {"min": 0.1, "max": 1.0}, "training.clip": 1.0})

CODE = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Greedy:
    epsilon: float = 0.2
    tries: int = 3
    __pydantic_config__ = {"extra": "forbid"}
    def __post_init__(self):
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon is {self.epsilon}; choose a number from 0 to 1")
    def suggest(self, space, history, n, rng): ...

@dataclass(frozen=True)
class Patient:
    most: int = 9
    def scheduler(self, plan): ...

class NoOptions:
    def suggest(self, space, history, n, rng): ...

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
def short(): ...
number = 3
"""


@pytest.fixture(autouse=True)
def user_code(tmp_path, monkeypatch):
    """Write a user's module, and modules whose import fails."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plugged.py").write_text(CODE)
    (tmp_path / "broken.py").write_text("import math\n\nmath.sqrt(-1)\n")
    (tmp_path / "quits.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "half.py").write_text("import no_such_dependency\n")


def built(data):
    """Return the searcher that a spec's mapping names."""
    return build(SEARCHERS, read(SEARCHERS, data))


def refusal(call, *args):
    with pytest.raises(SpecError) as caught:
        call(*args)
    return str(caught.value)


@pytest.mark.parametrize("name", SEARCHERS.classes)
def test_every_search_method_builds_with_its_defaults(name):
    assert callable(build(SEARCHERS, PlugIn(name)).suggest)


@pytest.mark.parametrize(
    ("kind", "data", "options"),
    [
        (SEARCHERS, {"method": "plugged.py:Greedy", "epsilon": 0.5}, {"epsilon": 0.5, "tries": 3}),
        (SCHEDULERS, {"type": "plugged.py:Patient", "most": 4}, {"most": 4}),
    ],
)
def test_a_class_in_a_file_of_the_users_builds_with_its_options(
    kind, data, options, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    plug_in = build(kind, read(kind, data))
    assert vars(plug_in) == options
    assert type(plug_in) is resolve(f"{tmp_path}/{data[kind.key]}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"method": "rnadom"}, "method: rnadom: no such search method; did you mean 'random'?"),
        ({}, "method: is missing; choose"),
        ({"method": "plugged:Gredy"}, "method: plugged has no such name; did you mean 'Greedy'?"),
        ({"method": "pluged:Greedy"}, "method: there is no module pluged; install it"),
        ({"method": "a b:C"}, "method: 'a b:C' is no name of a plug-in; write module:Name"),
        ({"method": "plugged:NoOptions"}, "method: plugged:NoOptions is not a dataclass"),
        ({"method": "plugged:Net"}, "method: plugged:Net is no search method: it has no suggest()"),
        (
            {"method": "plugged:Greedy", "epsilom": 1},
            "epsilom: no such key; did you mean 'epsilon'?",
        ),
        ({"method": "plugged:Greedy", "epsilon": 2}, "epsilon: is 2.0; choose a number from 0"),
        ({"method": "plugged:Greedy", "tries": True}, "tries: is true; give a whole number"),
    ],
)
def test_an_unsuitable_plug_in_is_refused_with_the_reason(data, message):
    assert refusal(built, data).startswith(message)


@pytest.mark.parametrize("reference", ["plugged:Net", "plugged:function"])
def test_a_trainable_is_a_dataclass_or_a_function(reference):
    check_trainable(reference, SPACE)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("pluged:Net", "trainable: "),
        ("plugged:number", "trainable: "),
        ("missing/file.py:Net", "trainable: "),
        (
            "plugged:Old",
            "trainable: plugged:Old must be a frozen dataclass with train(self, worker)",
        ),
        ("broken:Net", "trainable: broken fails when it is imported: ValueError"),
        ("plugged:Deep", "parameters: field layers of Deep has no default; add a parameter"),
    ],
)
def test_an_unsuitable_trainable_is_refused_with_the_reason(reference, message):
    assert refusal(check_trainable, reference, SPACE).startswith(message)


def test_only_a_class_with_a_worker_can_do_other_than_stop_at_nan():
    """Any other trainable would silently ignore `failure.nan`."""
    check_updates("plugged:Net", "rollback")
    check_updates("plugged:function", "stop")
    assert refusal(check_updates, "plugged:function", "skip") == (
        "failure.nan: is skip, but plugged:function makes its updates itself; write nan: stop, "
        "or give a Task"
    )
