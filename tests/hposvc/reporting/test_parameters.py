import pytest

from hposvc.reporting.parameters import axis, describe, rounded, words
from searchers.space import Space

SPACE = Space.from_dict(
    {
        "lr": {"min": 1e-4, "max": 1e-2, "log": True},
        "depth": {"min": 1, "max": 9},
        "flag": {"values": [True, 1, "true"]},
    }
)


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [("lr", 1e-3, 50), ("depth", 9, 100), ("flag", True, 16.67), ("flag", 1, 50)],
)
def test_each_value_has_a_place(name, value, place):
    assert axis(describe(name, SPACE[name]), 0, 100).place(value) == pytest.approx(place, abs=0.1)


def test_values_are_written_for_people():
    assert [words(value) for value in (True, None, 0.1234567, "sgd", 3)] == [
        "true",
        "none",
        "0.12346",
        "sgd",
        "3",
    ]
    assert rounded(0.001234) == "0.0012"
