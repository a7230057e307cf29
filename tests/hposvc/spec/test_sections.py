"""The sections that compute: metrics, retries, durations, sizes."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.errors import SpecError
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.sections import Checkpoints, Failure, Metric, SelectedValue
from hposvc.spec.types import read_bytes, read_seconds
from trainables.storage.checkpoint import Period

CURVE = [(1, 0.5), (2, 0.9), (3, 0.7), (4, 0.8)]


def test_the_loss_is_the_value_or_its_negative():
    assert Metric("loss", "minimize").loss(0.3) == 0.3
    assert Metric("accuracy", "maximize").loss(0.3) == -0.3


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_a_better_value_has_a_lower_loss(one, other):
    assert (one > other) == (
        Metric("accuracy", "maximize").loss(one) < Metric("accuracy", "maximize").loss(other)
    )


def test_a_curve_of_losses_selects_at_each_step():
    """Searchers compare trials at a step, by the value that would be selected there."""
    curve = [*CURVE[:3], (4, math.nan), (5, 0.8)]
    assert Metric("x", "minimize").losses(curve) == ((1, 0.5), (2, 0.9), (3, 0.7), (5, 0.8))
    best = Metric("x", "maximize", "best").losses(curve)
    assert best == ((1, -0.5), (2, -0.9), (3, -0.9), (5, -0.9))
    mean = dict(Metric("x", "minimize", "mean_2").losses(curve))
    assert mean == pytest.approx({1: 0.5, 2: 0.7, 3: 0.8, 5: 0.75})


@pytest.mark.parametrize(
    ("goal", "select", "value"),
    [
        ("maximize", "last", 0.8),
        ("maximize", "best", 0.9),
        ("minimize", "best", 0.5),
        ("maximize", "mean_2", 0.75),
        ("maximize", "mean_100", 0.725),
    ],
)
def test_a_curve_has_the_selected_value(goal, select, value):
    assert Metric("x", goal, select).value(CURVE) == pytest.approx(value)


@pytest.mark.parametrize("select", ["last", "best", "mean_3"])
def test_a_curve_without_points_has_no_value(select):
    assert Metric("x", "minimize", select).value([]) is None


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


def test_without_a_target_no_value_reaches_it():
    assert not Metric("x", "minimize").reached(-math.inf)


def test_retries_are_counted_by_cause():
    failure = Failure(infra_retries=3, user_retries=1)
    assert failure.retries("infra") == 3
    assert failure.retries("user") == 1
    assert failure.retries("preempt") is None
    assert Failure(preempt_retries=2).retries("preempt") == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("3d", 259_200), (45, 45)],
)
def test_a_duration_is_seconds(text, seconds):
    assert read_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["2 hours", "h", "", "-1s", -1, True, None, "1e3s", "9" * 400 + "s"]
)
def test_a_text_that_is_not_a_duration_is_refused(text):
    with pytest.raises(ValueError, match="give a duration like"):
        read_seconds(text)


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 2**32), ("1.5KiB", 1536), ("2 MB", 2_000_000), (1024, 1024)]
)
def test_a_size_is_bytes(text, size):
    assert read_bytes(text) == size


@pytest.mark.parametrize("text", ["4G", "4gib", "", "0B", -1, True, 1.5, "9" * 400 + "B"])
def test_a_text_that_is_not_a_size_is_refused(text):
    with pytest.raises(ValueError, match="give a size like"):
        read_bytes(text)


@pytest.mark.parametrize(
    ("every", "interval"),
    [
        (3, 3),
        ("500 steps", Period(updates=500)),
        ("1 step", Period(updates=1)),
        ("10m", Period(seconds=600.0)),
        ("1h30m", Period(seconds=5400.0)),
        ("90s", Period(seconds=90.0)),
    ],
)
def test_checkpoints_are_kept_by_steps_updates_or_time(every, interval):
    assert fill(Checkpoints, {"every": every}).interval == interval


@pytest.mark.parametrize("every", [0, -1, 1.5, True, "500", "0 steps", "0s", "10 m", "", None, []])
def test_a_value_that_is_not_an_interval_is_refused(every):
    with pytest.raises(SpecError, match="a whole number in units of fidelity, or a period like"):
        fill(Checkpoints, {"every": every})


def test_a_hang_is_retried_as_often_as_a_lost_node():
    assert Failure(infra_retries=7, user_retries=1).retries("stalled") == 7


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


@pytest.mark.parametrize("select", SELECTS)
def test_a_report_costs_the_same_after_ten_thousand_others(select):
    selected = SelectedValue(Metric("x", "minimize", select))

    def seconds(first):
        began = time.perf_counter()
        for step in range(first, first + 2_000):
            selected.add(step, 1 / step)
        return time.perf_counter() - began

    early = min(seconds(1), seconds(2_001))
    for step in range(4_001, 40_001):
        selected.add(step, 1 / step)
    late = min(seconds(40_001 + 2_000 * turn) for turn in range(3))
    assert late < 5 * early, "it is far more where the whole curve is looked through"


def test_a_mean_is_finite_although_its_sum_overflows():
    largest = 1.7e308
    curve = [(step, largest) for step in range(1, 5)]
    assert Metric("x", "minimize", "mean_3").losses(curve)[-1] == (4, largest)
    assert Metric("x", "minimize", "mean_3").value(curve) == largest
