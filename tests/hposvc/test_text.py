import json
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.text import (
    cost_of,
    cost_range_of,
    duration,
    energy,
    finite,
    format_bytes,
    format_size,
    number,
    numbers,
    spelled,
    value_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.98612345, "0.98612"),
        (1234567.0, "1.2346e6"),
        (-1e-5, "-1e-5"),
        (1e-10, "1e-10"),
        (1e100, "1e100"),
        (-inf, "-∞"),
        (nan, "nan"),
    ],
)
def test_a_number_has_five_digits(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(None, "null"), (True, "true"), (64, "64"), (3.14159e-5, "3.14e-5"), ("adamw", "adamw")],
        *[([64, 32], "[64, 32]"), ({"ä": "b"}, '{"ä": "b"}')],
    ],
)
def test_a_parameter_is_short(value, text):
    assert value_text(value, digits=3) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(None, "–"), (-1, "0s"), (0.0034, "0.0034s"), (3, "3s"), (2.55, "2.5s"), (59.9, "59s")],
        *[(60, "1m"), (75, "1m 15s"), (3725, "1h 02m"), (7200, "2h"), (90000, "1d 01h")],
    ],
)
def test_a_duration_has_two_units(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(512, "512 B"), (2**20, "1 MiB"), (3.4 * 2**30, "3.4 GiB")]
)
def test_a_size_has_a_binary_unit(count, text):
    assert format_bytes(count) == text


def test_json_gets_null_or_a_name_for_what_it_has_no_number_for():
    data = {"a": (1.23456789, nan), "b": [inf, {"c": -inf}], "d": "NaN", "e": True}
    assert json.loads(json.dumps(finite(data, digits=3), allow_nan=False)) == {
        **{"a": [1.23, None], "b": [None, {"c": None}], "d": "NaN", "e": True}
    }
    assert json.loads(json.dumps(spelled(data), allow_nan=False)) == {
        **{"a": [1.23456789, "NaN"], "b": ["Infinity", {"c": "-Infinity"}], "d": "NaN", "e": True}
    }


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (8e10, "80 GB")],
)
def test_a_size_has_a_unit_and_three_digits(count, text):
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0.97552, 0.97558, 0.97566), ["0.97552", "0.97558", "0.97566"]),
        ((0.905, 0.912, 0.919), ["0.905", "0.912", "0.919"]),
        ((-0.00192, 0.000392, 0.00455), ["-0.00192", "0.000392", "0.00455"]),
        ((2.0, 2.0, 2.0), ["2", "2", "2"]),
        ((0.0, 0.0, 0.0), ["0", "0", "0"]),
    ],
)
def test_intervals_show_where_they_end(values, words):
    assert numbers(*values) == words


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=3))
def test_numbers_are_near_their_values(values):
    near = max(values) - min(values) or max(map(abs, values)) / 100
    for value, word in zip(values, numbers(*values), strict=True):
        assert abs(float(word) - value) <= near


def test_a_range_of_costs_is_in_the_unit_of_the_cost_beside_it():
    assert cost_of(198, gpus=0) == "3.3 worker-minutes"
    assert cost_range_of(0, 450, 198, gpus=0) == "0 to 7.5 worker-minutes"
    assert cost_range_of(30, 110, 50, gpus=0) == "30 to 110 worker-seconds"
    assert cost_range_of(198, 198, 198, gpus=0) == ""


def test_small_energy_is_in_watt_hours():
    assert [energy(kwh) for kwh in (12.345, 0.1, 0.0314, 0.0)] == [
        "12.3 kWh",
        "0.1 kWh",
        "31.4 Wh",
        "0 Wh",
    ]
