"""Choices and constants, with the properties that searchers rely on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchers.domains import MAX_VALUES, Choice, Constant
from searchers.values import SpaceError, identity

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("abc", max_size=2)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3))
CHOICES = st.lists(VALUES, min_size=1, max_size=6, unique_by=identity).map(
    lambda values: Choice(tuple(values))
)


@given(CHOICES)
def test_every_value_comes_back_from_the_unit_interval(choice):
    for value in choice.values:
        unit = choice.to_unit(value)
        assert 0 < unit < 1
        assert identity(choice.from_unit(unit)) == identity(value)


@given(CHOICES, st.floats(0.0, 1.0))
def test_every_point_of_the_interval_is_a_value(choice, unit):
    assert choice.problem(choice.from_unit(unit)) is None


def test_an_ordered_choice_moves_to_a_neighbour_and_others_stay():
    class Up:
        def random(self):
            return 0.0

    scale = Choice((8, 16, 32), ordered=True)
    assert [scale.moved(value, Up()) for value in scale.values] == [16, 32, 32]
    assert Choice((8, 16, 32)).moved(8, Up()) == 8


def test_true_is_no_value_of_a_choice_of_numbers():
    assert Choice((0, 1)).problem(1.0) is None
    assert Choice((0, 1)).cast(1.0) == 1
    assert Choice((0, 1)).problem(True) == "is True; choose from 0, 1"


@pytest.mark.parametrize(
    ("values", "ordered", "path"),
    [
        ((), False, ("values",)),
        (range(MAX_VALUES + 1), False, ("values",)),
        ((1, 2, 1), False, ("values", 2)),
        ((1, float("nan")), False, ("values", 1)),
        ((1,), True, ("ordered",)),
    ],
)
def test_a_choice_that_makes_no_sense_says_where(values, ordered, path):
    with pytest.raises(SpaceError) as refused:
        Choice(values, ordered)
    assert refused.value.path == path


def test_a_constant_has_one_value_whatever_is_asked():
    constant = Constant(64)
    assert (constant.from_unit(0.9), constant.cast(64.0), constant.grid(9)) == (64, 64, (64,))
    assert constant.problem(64) is None
    assert constant.problem(65) == "is 65, but it is a constant of 64"
    with pytest.raises(SpaceError, match="give a finite number"):
        Constant(float("inf"))


def test_lists_are_equal_as_their_values_are():
    choice = Choice(([64, 64], (128,), []))
    assert choice.values == ([64, 64], [128], [])
    assert choice.cast((64.0, 64)) == [64, 64]
    assert choice.problem([64]) == "is [64]; choose from [64, 64], [128], []"
    assert hash(choice) == hash(Choice(((64, 64), [128], ())))
    with pytest.raises(SpaceError, match=r"values\[1\]: \[1.0\] is there twice"):
        Choice(([1], [1.0]))


def test_a_list_and_the_text_that_shows_it_are_not_told_apart_by_people():
    with pytest.raises(SpaceError, match=r"is \[1, 2\] as a list, and the text '\[1, 2\]'"):
        Choice(([1, 2], "[1, 2]"))
