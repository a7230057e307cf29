"""The result of a sweep with several metrics, from Python."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import make_several, make_spec

from hposvc import NoSingleBest, NoValue, api
from hposvc.reporting.result import Result
from hposvc.spec.metrics import Metric
from hposvc.state import summary

MANY = {"max": 60, "parallel": 8}
NOWHERE = {"send_to": []}  # MLflow would take seconds


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(
        tmp_path_factory.mktemp("home"),
        make_several(trials=MANY, tracking=NOWHERE, scheduler="asha"),
    )


def run(folder: Path, spec) -> Result:
    sweeps = api.Sweeps.open(folder)
    record = api.drive(sweeps, api.create(sweeps, spec))
    return Result(record.row.id, record.state.state, record)


def test_the_front_is_a_table_in_which_no_row_beats_another(result):
    frame = result.pareto
    assert list(frame.columns) == ["trial", "loss", "speed", "step", "checkpoint", "lr"]
    assert len(frame) > 2
    assert frame.loss.is_monotonic_increasing
    assert frame.speed.is_monotonic_increasing  # along a front, one metric's loss is another's gain
    done = result.trials.dropna(subset=["loss"])
    for row in frame.itertuples():
        beats = (done.loss <= row.loss) & (done.speed >= row.speed)
        assert (done[beats].loss == row.loss).all()


def test_there_is_no_single_best_and_the_error_says_what_to_take(result):
    with pytest.raises(
        NoSingleBest, match=r"the best of loss and speed; take one of result.pareto"
    ):
        _ = result.best


def test_all_trials_have_a_column_a_metric(result):
    frame = result.trials
    assert "value" not in frame.columns
    assert list(frame.columns[:5]) == ["trial", "state", "reason", "loss", "speed"]
    assert len(frame) == MANY["max"]


def test_the_hypervolume_is_what_lies_between_the_front_and_the_reference(result):
    frame = result.pareto
    widths = np.diff([*frame.loss, 100.0])
    assert result.hypervolume([100.0, -100.0]) == pytest.approx(widths @ (frame.speed + 100.0))
    assert result.hypervolume({"speed": -100.0, "loss": 100.0}) == result.hypervolume([100, -100])
    assert result.hypervolume([frame.loss.min(), -100.0]) == 0.0
    done = result.trials[result.trials.state == "COMPLETED"]
    assert result.hypervolume() == result.hypervolume([done.loss.max(), done.speed.min()])


def test_a_front_that_nobody_is_on_is_an_empty_table(tmp_path):
    empty = run(
        tmp_path / "a", make_several(trials=MANY, tracking=NOWHERE, limits=["speed >= 1000"])
    )
    assert list(empty.pareto.columns) == ["trial", "loss", "speed", "step", "checkpoint"]
    assert empty.hypervolume() == 0.0
    single = run(tmp_path / "b", make_spec(trials=MANY, tracking=NOWHERE, limits=["loss <= -1"]))
    with pytest.raises(NoValue, match="no trial has a value within the limits, 0 failed"):
        _ = single.best


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), max_size=6))
def test_the_worst_of_each_metric_is_by_its_goal(results):
    metrics = (Metric("loss", "minimize"), Metric("speed", "maximize"))
    expected = (max(r[0] for r in results), min(r[1] for r in results)) if results else None
    assert summary.worst(metrics, results) == expected


def test_json_has_the_front_wherever_it_has_the_best(result):
    best = result.record.best()
    assert [trial.trial for trial in best] == list(result.pareto.trial)
    assert result.record.status().best == best
    values = [trial.value for trial in result.record.trials()]
    assert all(value is None or len(value) == 2 for value in values)
    assert all(math.isfinite(item) for trial in best for item in trial.value)
