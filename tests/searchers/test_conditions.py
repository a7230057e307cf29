import pytest

from searchers import Space, SpaceError


def test_an_unknown_parent_is_named_with_the_nearest():
    with pytest.raises(SpaceError) as caught:
        Space.from_dict(
            {
                "optimizer": {"values": ["sgd", "adamw"]},
                "momentum": {"min": 0.8, "max": 0.99, "when": {"optimiser": "sgd"}},
            }
        )
    assert caught.value.path == ("parameters", "momentum", "when", "optimiser")
    assert "did you mean 'optimizer'?" in str(caught.value)


@pytest.mark.parametrize("allowed", ["sdg", 1, None, ["sgd", "lion"]])
def test_a_value_that_the_parent_never_has_is_refused(allowed):
    with pytest.raises(SpaceError, match="can never be met, since optimizer is"):
        Space.from_dict(
            {
                "optimizer": {"values": ["sgd", "adamw", True]},
                "momentum": {"min": 0.8, "max": 0.99, "when": {"optimizer": allowed}},
            }
        )


def test_true_and_one_are_two_conditions():
    space = Space.from_dict(
        {"flag": {"values": [True, 1]}, "size": {"min": 1, "max": 9, "when": {"flag": True}}}
    )
    assert space.active({"flag": True, "size": 3}) == {"flag", "size"}
    assert space.active({"flag": 1}) == {"flag"}


def test_conditions_in_a_circle_are_refused():
    with pytest.raises(SpaceError, match="a, b wait for one another; remove a condition"):
        Space.from_dict(
            {
                "c": 1,
                "a": {"values": [1, 2], "when": {"b": 1}},
                "b": {"values": [1, 2], "when": {"a": 1}},
            }
        )
    with pytest.raises(SpaceError, match="wait for one another"):
        Space.from_dict({"a": {"values": [1, 2], "when": {"a": 1}}})


def test_all_conditions_must_hold_and_a_constant_can_be_one():
    space = Space.from_dict(
        {
            "a": {"values": [1, 2]},
            "mode": "fast",
            "n": {"min": 1, "max": 5},
            "x": {"min": 0.0, "max": 1.0, "when": {"a": 1, "mode": "fast", "n": [2, 3]}},
        }
    )
    assert "x" in space.active({"a": 1, "mode": "fast", "n": 3})
    assert "x" not in space.active({"a": 1, "mode": "fast", "n": 4})
    assert "x" not in space.active({"a": 2, "mode": "fast", "n": 3})
