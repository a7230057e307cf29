import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.space import Space
from searchers.values import (
    MAX_DEPTH,
    SpaceError,
    as_text,
    copied,
    identity,
    is_number,
    is_scalar,
    is_value,
)


def test_the_error_of_a_space_can_be_pickled_with_its_path():
    error = pickle.loads(pickle.dumps(SpaceError(("parameters", "lr"), "is odd")))
    assert (error.path, error.message) == (("parameters", "lr"), "is odd")
    assert str(error.under("spec")) == "spec.parameters.lr: is odd"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), "is odd"),
        (("lr",), "lr: is odd"),
        (("lr", "values", 2), "lr.values[2]: is odd"),
    ],
)
def test_an_error_says_where_the_fault_is(path, text):
    assert str(SpaceError(path, "is odd")) == text
    assert SpaceError(path, "is odd").under("p").path == ("p", *path)


def test_true_is_not_one():
    assert identity(True) != identity(1)
    assert identity(1) == identity(1.0)


@pytest.mark.parametrize(
    ("value", "number", "scalar"),
    [
        (1, True, True),
        (0.5, True, True),
        (True, False, True),
        (None, False, True),
        ("1", False, True),
        (math.nan, False, False),
        (-math.inf, False, False),
        ([1], False, False),
        ({"a": 1}, False, False),
    ],
)
def test_numbers_are_finite_and_scalars_are_no_lists(value, number, scalar):
    assert is_number(value) is number
    assert is_scalar(value) is scalar


@pytest.mark.parametrize("value", [10**400, -(10**400), math.nan, math.inf, -math.inf])
def test_a_number_that_no_float_can_hold_is_refused(value):
    """An integer of 400 digits is no infinity to Python, but an OverflowError."""
    for declared in (value, {"values": [1, value]}, {"values": [{"n": "a", "v": value}]}):
        with pytest.raises(SpaceError, match=r"parameters\.x"):
            Space.from_dict({"x": declared})


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, "1", "[1]"])
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner)
)


@given(nested, nested)
def test_lists_and_mappings_have_an_identity_that_can_be_hashed(one, other):
    equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert not equal or identity(one) == identity(other)
    assert identity(one) != identity(other) or one == other
    assert {identity(one): 1}[identity(copied(one))] == 1


def test_the_identity_of_a_list_is_that_of_its_items():
    assert identity([1, 2]) == identity((1.0, 2))
    assert len({identity(value) for value in ([1], [True], 1, "[1]", [[1]], [], {}, None)}) == 8


def test_text_is_json_where_a_value_has_parts():
    assert as_text([64, "é", None, True]) == '[64, "é", null, true]'
    assert [as_text(value) for value in (1e-05, True, "a")] == ["1e-05", "True", "a"]


def test_nothing_is_a_value_that_json_can_not_hold():
    assert is_value([[{"a": [1, None]}], "x"])
    deep = [1]
    for _ in range(MAX_DEPTH):
        deep = [deep]
    for value in ([math.nan], [{1: 2}], [object()], [{1, 2}], deep):
        assert not is_value(value)
