"""Plug-ins by name and by module:Class, and their options."""

import pytest

from hposvc.errors import SpecError
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PlugIn, build, read, resolve

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

"""


@pytest.fixture(autouse=True)
def user_code(tmp_path, monkeypatch):
    """Write a user's module."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plugged.py").write_text(CODE)


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
