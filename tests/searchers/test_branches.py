"""Conditions from the paths through a function that suggests values."""

import pytest

from searchers.branches import Leaf, condition
from searchers.domains import Choice, Float
from searchers.values import SpaceError

OPTIMIZER = Choice(("sgd", "adam", "lion"))
FLAG = Choice((False, True))
RATE = Float(0.0, 1.0)


def leaf(taken, *names):
    """Return a path that looked at these values and suggested these rates."""
    domains = {"optimizer": OPTIMIZER, "flag": FLAG}
    parents = {name: domains[name] for name in taken}
    return Leaf({**parents, **dict.fromkeys(names, RATE)}, taken)


def test_a_parameter_of_every_path_has_no_condition():
    leaves = [leaf({"optimizer": value}, "lr") for value in OPTIMIZER.values]
    assert condition("lr", leaves) == {}


def test_a_parameter_of_some_paths_is_active_for_their_values_in_the_domain_s_order():
    leaves = [
        leaf({"optimizer": "lion"}, "momentum"),
        leaf({"optimizer": "adam"}),
        leaf({"optimizer": "sgd"}, "momentum"),
    ]
    assert condition("momentum", leaves) == {"optimizer": ("sgd", "lion")}


def test_a_parent_that_allows_every_value_is_left_out():
    leaves = [
        leaf({"optimizer": value, "flag": flag}, *(["lr"] if flag else []))
        for value in OPTIMIZER.values
        for flag in FLAG.values
    ]
    assert condition("lr", leaves) == {"flag": (True,)}


def test_what_and_does_not_say_is_refused():
    leaves = [
        leaf({"optimizer": value, "flag": flag}, *(["lr"] if (value == "sgd") == flag else []))
        for value in ("sgd", "adam")
        for flag in FLAG.values
    ]
    with pytest.raises(SpaceError, match="some combinations of optimizer, flag alone"):
        condition("lr", leaves)


def test_a_condition_holds_where_all_its_parents_have_an_allowed_value():
    path = leaf({"optimizer": "sgd", "flag": True})
    assert path.meets({"optimizer": ("sgd", "lion"), "flag": (True,)})
    assert not path.meets({"flag": (1,)})  # which Python calls equal to True
    assert not path.meets({"other": ("sgd",)})
