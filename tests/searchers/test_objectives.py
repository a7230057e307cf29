"""Goals and signs. If these fail, a searcher maximizes the loss."""

import numpy as np
import pytest

from searchers.objectives import Objectives, are_finite

BOTH = Objectives.of(["minimize", "maximize"])


def test_the_sign_is_flipped_where_values_are_maximized_and_comes_back():
    assert Objectives.of("minimize").losses(2.5, "tell") == (2.5,)
    assert Objectives.of("maximize").losses(2.5, "tell") == (-2.5,)
    assert BOTH.losses([1, 2], "tell") == (1.0, -2.0)
    assert BOTH.in_user_sign((1.0, -2.0)) == (1.0, 2.0)
    assert Objectives.of("maximize").in_user_sign((-2.5,)) == 2.5


@pytest.mark.parametrize("value", [np.array(3.0), np.float32(3), np.int64(3), 3])
def test_numbers_of_numpy_are_numbers(value):
    assert Objectives.of("minimize").losses(value, "tell") == (3.0,)
    assert BOTH.losses(np.array([3.0, 1.0]), "tell") == (3.0, -1.0)


@pytest.mark.parametrize("goal", ["min", ["minimize"], ["minimize"] * 5, ["minimize", "up"]])
def test_a_goal_that_is_none_is_refused(goal):
    with pytest.raises(ValueError, match="goal is"):
        Objectives.of(goal)


@pytest.mark.parametrize("value", ["3", None, True, [1.0]])
def test_one_goal_takes_a_number_alone(value):
    with pytest.raises(ValueError, match=r"^tell: value is .*give a number"):
        Objectives.of("minimize").losses(value, "tell")


@pytest.mark.parametrize("value", [1.0, "ab", [1.0], [1.0, 2.0, 3.0], [1.0, "2"], [1.0, True]])
def test_several_goals_take_a_number_each(value):
    with pytest.raises(ValueError, match=r"^tell: .*give a list of 2 numbers"):
        BOTH.losses(value, "tell")


def test_nan_is_a_number_and_not_finite():
    [loss] = Objectives.of("minimize").losses(float("nan"), "tell")
    assert not are_finite([1.0, loss])
    assert are_finite([1.0, -1.0])
