"""Names with points, as a trial's code gets them."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables import Worker
from trainables.load import LoadError, bind
from trainables.nesting import clash, nest

SEEN = []  # tasks that were trained
PARTS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4)
PARAMS = st.dictionaries(PARTS.map(".".join), st.integers(), max_size=8)


def flat(nested, *path):
    for name, value in nested.items():
        if isinstance(value, dict):
            yield from flat(value, *path, name)
        else:
            yield ".".join((*path, name)), value


@given(PARAMS)
def test_nesting_loses_nothing_unless_two_names_clash(params):
    if found := clash(params):
        above, name = found
        assert {above, name} <= params.keys()
        assert name.startswith(f"{above}.")
    else:
        assert dict(flat(nest(params))) == params


@dataclass(frozen=True)
class Adam:
    lr: float = 0.1
    beta: float = 0.9


@dataclass(frozen=True)
class Head:
    width: int


@dataclass(frozen=True)
class Model:
    head: Head
    layers: int = 4


@dataclass
class Net:
    model: Model
    optimizer: Adam | None = field(default_factory=lambda: Adam(beta=0.5))
    options: dict = field(default_factory=dict)

    def train(self, worker):
        SEEN.append(self)


def trained(params):
    SEEN.clear()
    bind(Net, params)(Worker.alone())
    return SEEN[0]


def test_sections_of_a_class_keep_the_defaults_of_their_objects():
    net = trained({"model.head.width": 8, "optimizer.lr": 1.0, "options.x.y": 3})
    assert net == Net(Model(Head(8)), Adam(1.0, 0.5), {"x": {"y": 3}})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"model.head.width": 8, "optimizer.ir": 1.0}, "optimizer.ir is no field of Adam; .* lr"),
        ({"model.head.width": 8, "modl.layers": 1}, "modl.layers is no field of Net; .* model"),
        ({"model.layers": 1}, "field model.head of Net has no default"),
        ({}, "field model of Net has no default"),
        ({"model": 1, "model.layers": 1}, "model.layers lies within model, which is a parameter"),
    ],
)
def test_sections_that_do_not_fit_are_refused(params, message):
    with pytest.raises(LoadError, match=message):
        bind(Net, params)


def test_a_function_gets_mappings():
    seen = []

    def train(params, worker):
        seen.append(params)

    bind(train, {"optimizer.lr": 0.1, "optimizer.name": "sgd", "depth": 2})(Worker.alone())
    assert seen == [{"optimizer": {"lr": 0.1, "name": "sgd"}, "depth": 2}]
