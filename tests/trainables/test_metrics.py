"""Reported metrics. If these fail, MLflow refuses a whole sweep's reports."""

import math
import re

import numpy as np
import pytest
import torch

from trainables.metrics import LONGEST_NAME, MOST_METRICS, checked


class Lacking(Exception):
    """The sweep's metric is missing."""


def test_numbers_of_any_library_become_plain_floats():
    given = {"a": 1, "b": np.float32(0.5), "c": torch.tensor(2.0), "d": np.array([3.0])}
    values = checked(given, (), ValueError)
    assert values == {"a": 1.0, "b": 0.5, "c": 2.0, "d": 3.0}
    assert {type(value) for value in values.values()} == {float}


def test_a_number_beyond_floats_is_infinite_and_nan_stays():
    assert checked({"a": 10**400, "b": -(10**400)}, (), ValueError) == {
        "a": math.inf,
        "b": -math.inf,
    }
    assert math.isnan(checked({"a": math.nan}, (), ValueError)["a"])


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ([1.0], "metrics is list"),
        ({"a": True}, "'a' is True"),
        ({"a": "1"}, "'a' is '1'"),
        ({"a": None}, "'a' is None"),
        ({"a": torch.ones(2)}, "'a' holds several numbers"),
        ({1: 1.0}, "of type int"),
        ({"": 1.0}, "may hold letters"),
        ({"a,b": 1.0}, "may hold letters"),
        ({"a//b": 1.0}, "is read as a path; write 'a/b'"),
        ({"../a": 1.0}, "is read as a path"),
        ({"x" * (LONGEST_NAME + 1): 1.0}, "characters"),
        ({f"m{k}": 1.0 for k in range(MOST_METRICS + 1)}, "report at most"),
    ],
)
def test_what_a_tracker_would_refuse_is_refused(metrics, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        checked(metrics, (), ValueError)


def test_the_sweep_s_own_metric_must_be_there_and_the_nearest_is_named():
    with pytest.raises(Lacking, match="'loss' is missing; the nearest reported is 'los'"):
        checked({"los": 1.0}, ("loss",), ValueError, Lacking)
    with pytest.raises(ValueError, match="'loss' is missing"):
        checked({"los": 1.0}, ("loss",), ValueError)
