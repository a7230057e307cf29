"""Stand-ins for values. If these fail, a function's branch is overlooked, and so are its values."""

import math
import operator
from pathlib import Path

import pytest

from searchers.unseen import Continuous, Unseen, ValueInspected

LOOKS = [
    bool,
    int,
    float,
    str,
    repr,
    hash,
    len,
    abs,
    iter,
    round,
    math.floor,
    Path,
    operator.neg,
    "{}".format,
    lambda value: value > 1,
    lambda value: value > 1,
    lambda value: value == 1,
    lambda value: value in {1, 2},
    lambda value: value + 1,
    lambda value: 2 * value,
    lambda value: value.real,
    lambda value: value[0],
    lambda value: value(),
    lambda value: range(3)[value],
    lambda value: isinstance(value, str),
]


@pytest.mark.parametrize("look", LOOKS)
def test_any_look_at_a_value_is_noticed_and_names_it(look):
    with pytest.raises(ValueInspected) as noticed:
        look(Unseen("layers"))
    assert noticed.value.names == ("layers",)


def test_an_except_of_the_function_s_own_does_not_hide_it():
    def careful(value):
        try:
            return value > 1
        except Exception:  # noqa: BLE001
            return False

    with pytest.raises(ValueInspected):
        careful(Unseen("layers"))


def test_passing_it_on_is_no_look():
    value = Unseen("layers")
    assert [item is value for item in [{"layers": value}["layers"]]] == [True]


def test_a_range_without_steps_may_be_printed_and_nothing_else():
    rate = Continuous("lr")
    assert (f"{rate}", f"{rate!r}", f"{rate:.3f}") == ("<lr>",) * 3
    with pytest.raises(ValueInspected):
        assert rate > 0
