"""Reported metrics. If these fail, a value beside the sweep's metric fails trials."""

import decimal
import fractions
import math

import numpy as np
import pytest
import torch

from trainables.metrics import MOST_METRICS, checked, describe_left_out

NO_NUMBERS = [
    None,
    True,
    np.bool_(True),
    "0.5",
    "a" * 500,
    [0.5],
    {"a": 0.5},
    1j,
    b"1",
    object(),
    np.array([0.5, 0.6]),
    torch.ones(2),
    torch.ones(()).to("meta"),
    decimal.Decimal("sNaN"),
]


class Loud:
    """A value whose text can't be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_numbers_of_any_library_become_plain_floats():
    given = {
        "a": 1,
        "b": np.float32(0.5),
        "c": torch.tensor(2.0, requires_grad=True),
        "d": np.array([3.0]),
        "e": decimal.Decimal("0.5"),
        "f": fractions.Fraction(1, 4),
        "g": torch.tensor(0.5, dtype=torch.bfloat16),
        "h": np.array(0.5),
    }
    values, left_out = checked(given, (), ValueError)
    assert [*values.values()] == [1.0, 0.5, 2.0, 3.0, 0.5, 0.25, 0.5, 0.5]
    assert {type(value) for value in values.values()} == {float}
    assert left_out == {}


def test_a_number_beyond_floats_is_infinite_and_nan_stays():
    assert checked({"a": 10**400, "b": -(10**400)}, (), ValueError).values == {
        "a": math.inf,
        "b": -math.inf,
    }
    assert math.isnan(checked({"a": math.nan}, (), ValueError).values["a"])


@pytest.mark.parametrize("value", [*NO_NUMBERS, Loud()])
def test_only_the_sweep_s_own_metric_must_be_a_number(value):
    values, left_out = checked({"loss": 0.5, "odd": value}, ("loss",), ValueError)
    assert values == {"loss": 0.5}
    assert [*left_out] == ["odd"]
    assert len(left_out["odd"]) < 100
    with pytest.raises(ValueError, match=r"metric 'loss' is .*; give a real number"):
        checked({"loss": value, "other": 1.0}, ("loss",), ValueError)


def test_what_is_left_out_is_described():
    _, left_out = checked({"auc": None, "best": "cat", "f1": [0.5, 0.6]}, (), ValueError)
    said = "auc is None (NoneType), best is 'cat' (str), f1 is [0.5, 0.6] (list)"
    assert describe_left_out(left_out) == said
    many = {f"m{number}": "None" for number in range(8)}
    assert describe_left_out(many).endswith("m4 is None, and 3 more")


def test_names_that_are_no_text_become_text_that_can_be_stored():
    values, _ = checked({1: 1.0, ("val", 2): 2.0, "bad\udc80": 3.0}, (), ValueError)
    assert values == {"1": 1.0, "('val', 2)": 2.0, "bad\\udc80": 3.0}


def test_of_too_many_metrics_the_sweep_s_own_is_kept():
    given = {f"m{number}": 1.0 for number in range(MOST_METRICS + 5)} | {"loss": 2.0}
    values, left_out = checked(given, ("loss",), ValueError)
    assert values["loss"] == 2.0
    assert len(values) == MOST_METRICS
    assert next(iter(left_out)) == f"m{MOST_METRICS - 1}"
    assert left_out[f"m{MOST_METRICS}"] == "one of 1,006; a step has at most 1,000"


def test_metrics_that_are_no_mapping_are_refused():
    with pytest.raises(ValueError, match="metrics is list"):
        checked([1.0], (), ValueError)


def test_the_sweep_s_own_metric_may_be_left_out_of_a_report_but_must_be_a_number():
    assert checked({"train": 1.0}, ("loss",), ValueError) == ({"train": 1.0}, {})
    with pytest.raises(ValueError, match=r"'loss' is None .* or leave it out of this report"):
        checked({"train": 1.0, "loss": None}, ("loss",), ValueError)
