import math
import pickle

import pytest

from searchers.space import Space
from searchers.values import SpaceError, identity, is_number, is_value


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
    ],
)
def test_numbers_are_finite_and_scalars_are_no_lists(value, number, scalar):
    assert is_number(value) is number
    assert is_value(value) is scalar


@pytest.mark.parametrize("value", [10**400, -(10**400), math.nan, math.inf, -math.inf])
def test_a_number_that_no_float_can_hold_is_refused(value):
    """An integer of 400 digits is no infinity to Python, but an OverflowError."""
    for declared in (value, {"values": [1, value]}, {"values": [{"n": "a", "v": value}]}):
        with pytest.raises(SpaceError, match=r"parameters\.x"):
            Space.from_dict({"x": declared})
