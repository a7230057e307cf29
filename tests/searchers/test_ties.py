"""Tied parameters: a choice among mappings, whose members take their values together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import METHODS, Choice, Space, SpaceError, create
from searchers.domains import Tied

SIZES = [
    {"layers": 2, "width": 256, "name": "small"},
    {"layers": 8, "width": 512, "name": "middle"},
    {"layers": 8, "width": 1024, "name": "large"},
]
LR = {"min": 1e-4, "max": 0.1, "log": True}


def space_of(values=SIZES, constraints=(), **others):
    return Space.from_dict({"size": {"values": values}, **others}, constraints)


def members(params):
    return {name: params[name] for name in ("layers", "width", "name")}


def test_the_first_member_that_always_differs_is_searched_and_the_others_follow():
    space = space_of(lr=LR)
    assert list(space) == ["layers", "width", "name", "lr"]
    assert space.searched == ("width", "lr")
    assert space["width"] == Choice((256, 512, 1024))
    assert space["layers"] == Tied("width", (256, 512, 1024), (2, 8, 8), "size")
    assert space.size is None
    assert space_of().size == 3


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_members_are_always_of_one_choice(seed):
    space, rng = space_of(lr=LR), np.random.default_rng(seed)
    params = space.sample(rng)
    for _ in range(5):
        assert members(params) in SIZES
        assert space.decode(space.encode(params)) == params
        assert space.allows(params)
        params = space.perturb(params, rng)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_proposes_only_what_is_tied(method):
    optimizer = create(method, space_of(lr=LR), "minimize", seed=1)
    seen = []
    for _ in range(12):
        trial = optimizer.ask()
        seen.append(members(trial.params))
        optimizer.tell(trial, trial.params["width"] / 1000 + trial.params["lr"])
    assert all(choice in SIZES for choice in seen)
    assert len({choice["name"] for choice in seen}) > 1


def test_a_grid_tries_each_choice_once():
    space = space_of(seed={"values": [1, 2]})
    listed = list(space.grid(1))
    assert [members(params) for params in listed] == [size for size in SIZES for _ in (1, 2)]
    assert list(space.grid(1, after=listed[3])) == listed[4:]


def test_a_name_may_be_that_of_a_member():
    space = Space.from_dict({"lr": {"values": [{"lr": 1, "wd": 2}, {"lr": 3, "wd": 4}]}})
    assert space.searched == ("lr",)


@pytest.mark.parametrize(
    "partial", [{"width": 512}, {"name": "middle"}, {"layers": 8}, {}, SIZES[0]]
)
def test_what_is_given_of_a_choice_decides_the_rest(partial):
    space = space_of(lr=LR)
    found = {space.complete(partial, np.random.default_rng(seed))["name"] for seed in range(30)}
    fitting = [size["name"] for size in SIZES if partial.items() <= size.items()]
    assert found == {*fitting}


def test_members_of_two_choices_are_refused():
    space = space_of(lr=LR)
    message = "layers: no choice of size has layers 2, width 512 together"
    with pytest.raises(SpaceError, match=message):
        space.complete({"layers": 2, "width": 512}, np.random.default_rng(0))
    with pytest.raises(SpaceError, match="no choice of size"):
        space.validate({**SIZES[0], "width": 512, "lr": 0.01})
    assert not space.allows({**SIZES[0], "width": 512, "lr": 0.01})


def test_a_condition_on_a_member_is_one_on_the_key():
    space = space_of(extra={"min": 0.0, "max": 1.0, "when": {"layers": 8, "width": [256, 512]}})
    assert space["extra"].when == {"width": (512,)}
    rng = np.random.default_rng(0)
    sampled = [space.sample(rng) for _ in range(50)]
    assert all(("extra" in params) == (params["width"] == 512) for params in sampled)


def test_a_constraint_may_name_members():
    space = space_of(constraints=["layers * width < 5000"])
    rng = np.random.default_rng(0)
    assert {space.sample(rng)["name"] for _ in range(50)} == {"small", "middle"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"a": 1}, {"b": 2}], r"values\[1\].b: is no member of the first choice"),
        ([{"a": 1}, 2], r"values\[1\]: is 2, but another choice is a mapping"),
        ([{"a": [{1}]}, {"a": [2]}], r"values\[0\].a: is \[.1.\]; give a finite number"),
        ([{"a b": 1}], r"values\[0\].a b: is not a valid name"),
        ([{"a": 1}, {"a": 1.0}], r"values\[1\]: .* is there twice"),
        (
            [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}],
            "values: a, b: none of them differs in every choice; add a member that does",
        ),
        ([{"lr": 1}, {"lr": 2}], r"values\[0\].lr: is a parameter of its own too"),
    ],
)
def test_mappings_that_do_not_fit_together_are_refused(values, message):
    with pytest.raises(SpaceError, match=rf"parameters.size.{message}"):
        space_of(values, lr=LR)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"size": "small"}, "is a choice among mappings; name a member: layers, width, name"),
        ({"layers": 3}, "can never be met, since layers is 3; choose from 2, 8"),
        ({"layers": 2, "name": "large"}, "can never be met together with the condition on width"),
    ],
)
def test_conditions_that_no_choice_meets_are_refused(when, message):
    with pytest.raises(SpaceError, match=message):
        space_of(extra={"min": 0.0, "max": 1.0, "when": when})
