"""Metrics, and limits on them."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.spec.metrics import Metric, SelectedValue, read_limit


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_better_value_has_a_lower_loss(one, other):
    assert (one > other) == (
        Metric("accuracy", "maximize").loss(one) < Metric("accuracy", "maximize").loss(other)
    )


def test_best_passes_over_nan():
    for goal, best in (("minimize", 0.2), ("maximize", 0.4)):
        curve = [(1, math.nan), (2, 0.2), (3, 0.4), (4, math.nan)]
        assert Metric("x", goal, "best").value(curve) == best


def test_last_and_mean_show_nan():
    curve = [(1, 0.2), (2, math.nan)]
    assert math.isnan(Metric("x", "minimize", "last").value(curve))
    assert math.isnan(Metric("x", "minimize", "mean_2").value(curve))


def test_a_target_is_reached_by_a_value_as_good_or_better():
    accuracy = Metric("x", "maximize", target=0.9)
    assert [accuracy.reached(value) for value in (0.89, 0.9, 0.91, math.nan)] == [
        False,
        True,
        True,
        False,
    ]
    loss = Metric("x", "minimize", target=0.1)
    assert [loss.reached(value) for value in (0.2, 0.1, -math.inf)] == [False, True, True]


SELECTS = ["last", "best", "mean_1", "mean_2", "mean_7", "mean_1000"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40),
    st.sampled_from(SELECTS),
    st.sampled_from(["minimize", "maximize"]),
)
def test_the_running_selected_value_equals_that_of_the_whole_curve(values, select, goal):
    metric = Metric("x", goal, select)
    selected, curve = SelectedValue(metric), []
    for step, value in enumerate(values, 1):
        selected.add(step, value)
        curve.append((step, value))
        assert selected.value == metric.value(curve)
        assert selected.losses[-1] == (step, metric.loss(selected.value))


def test_a_mean_is_finite_although_its_sum_overflows():
    largest = 1.7e308
    curve = [(step, largest) for step in range(1, 5)]
    assert Metric("x", "minimize", "mean_3").losses(curve)[-1] == (4, largest)
    assert Metric("x", "minimize", "mean_3").value(curve) == largest


def test_limits_bound_from_above_and_below_in_the_metrics_unit():
    assert read_limit("latency ms<=2e1").excess({"latency ms": 25.0}) == 5.0
    assert read_limit("acc >= 0.9").excess({"acc": 0.5}) == 0.4
    assert read_limit("acc >= 0.9").excess({"acc": math.nan}) == math.inf
