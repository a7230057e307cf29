"""The projection of a journal to MLflow runs."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_stories import begin

from hposvc import spec as specs
from hposvc.events import (
    Attached,
    Closed,
    Decided,
    Described,
    Ended,
    Event,
    Failed,
    Finished,
    Reported,
    Requested,
)
from hposvc.journal.journal import SweepRow
from hposvc.tracking.projection import PARENT, MetricPoint, Projection, RunContent
from trainables.dataset import DataSet

SPEC = {
    "metric": {"name": "val loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
    "trials": {"max": 9},
    "trainable": "trainables.zoo.digits:DigitsCNN",
    "description": "a valley",
    "tags": {"team": "vision", "ticket": 17},
}


def projection(**changes: object) -> Projection:
    spec = specs.load({**SPEC, **changes})
    return Projection(SweepRow("s-1", "s", "p", 1000.0, specs.dump(spec), {}), spec)


def reported(time: float, number: int, trial: str, step: int, loss: float) -> Reported:
    return Reported(time, number, trial, step, {"val loss": loss})


def entries_of(events: Sequence[Event]) -> dict[str, RunContent]:
    fold = projection()
    for event in events:
        fold.apply(event)
    return fold.take_entries()


# Two trials end well, one fails, one is killed.
STORY: list[Event] = [
    Attached(1001.0, "here:1"),
    *begin(1, 1002.0, until=3),
    *begin(2, 1002.5, until=3),
    reported(1003.0, 1, "t0001", 1, 0.9),
    reported(1003.5, 2, "t0002", 1, 0.8),
    reported(1004.0, 1, "t0001", 2, 0.7),
    Failed(1004.5, 2, "t0002", "user", "ValueError: no"),
    *begin(3, 1004.6, until=3),
    reported(1005.0, 1, "t0001", 3, 0.6),
    Ended(1005.1, 1, "t0001"),
    reported(1005.5, 3, "t0003", 1, 0.2),
    reported(1005.6, 3, "t0003", 2, 0.1),
    reported(1005.7, 3, "t0003", 3, 0.3),
    *begin(4, 1005.8, until=3),
    Ended(1006.0, 3, "t0003"),
    Requested(1006.5, "kill", "t0004"),
    Decided(1006.5, "t0004", 4, 0, "kill", "user"),
    Ended(1006.6, 4, "t0004"),
    Closed(1007.0, "user"),
    Finished(1008.0, "STOPPED", "user"),
]


def test_each_run_ends_as_its_trial_did():
    ends = {name: (entry.status, entry.end) for name, entry in entries_of(STORY).items()}
    assert ends == {
        "t0001": ("FINISHED", 1_005_100),
        "t0002": ("FAILED", 1_004_500),
        "t0003": ("FINISHED", 1_006_000),
        "t0004": ("KILLED", 1_006_600),
        PARENT: ("FINISHED", 1_008_000),
    }


def test_points_carry_our_steps_and_the_time_of_the_report():
    assert entries_of(STORY)["t0001"].points == [
        MetricPoint("objective", 0.9, 1_003_000, 1),
        MetricPoint("val loss", 0.9, 1_003_000, 1),
        MetricPoint("objective", 0.7, 1_004_000, 2),
        MetricPoint("val loss", 0.7, 1_004_000, 2),
        MetricPoint("objective", 0.6, 1_005_000, 3),
        MetricPoint("val loss", 0.6, 1_005_000, 3),
    ]


def test_the_objective_is_the_value_by_which_trials_are_compared():
    fold = projection(metric={**SPEC["metric"], "select": "best"})
    for event in [*STORY[:8], reported(1004.2, 1, "t0001", 3, 2.0)]:
        fold.apply(event)
    points = [point for point in fold.take_entries()["t0001"].points if point.name == "objective"]
    assert [point.value for point in points] == [0.9, 0.7, 0.7]


def test_a_metric_that_people_call_objective_is_theirs():
    fold = projection()
    for event in [*STORY[:4], Reported(1003.0, 1, "t0001", 1, {"val loss": 0.5, "objective": 7.0})]:
        fold.apply(event)
    assert [point.value for point in fold.take_entries()["t0001"].points] == [7.0, 0.5]


def test_nan_is_a_point_and_ends_the_trial_as_diverged():
    events = [*STORY[:8], reported(1004.2, 1, "t0001", 3, math.nan), Ended(1004.3, 1, "t0001")]
    entry = entries_of(events)["t0001"]
    assert math.isnan(entry.points[-1].value)
    assert (entry.tags["hposvc.reason"], entry.status) == ("diverged", "FINISHED")


def test_the_best_value_is_a_point_each_time_that_a_trial_ends():
    points = entries_of(STORY)[PARENT].points
    assert [point for point in points if point.name == "best/val loss"] == [
        MetricPoint("best/val loss", 0.7, 1_004_500, 1),
        MetricPoint("best/val loss", 0.6, 1_005_100, 2),
        MetricPoint("best/val loss", 0.3, 1_006_000, 3),
        MetricPoint("best/val loss", 0.3, 1_006_600, 4),
    ]


def test_the_mark_of_the_best_moves():
    fold = projection()
    for event in STORY[:13]:
        fold.apply(event)
    before = fold.take_entries()
    for event in STORY[13:]:
        fold.apply(event)
    after = fold.take_entries()
    assert [before[name].tags["hposvc.best"] for name in ("t0001", "t0002")] == ["true", "false"]
    assert [after[name].tags["hposvc.best"] for name in ("t0001", "t0003")] == ["false", "true"]


TWO = [{"name": "val loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}]


def several(time: float, number: int, trial: str, step: int, loss: float, speed: float) -> Reported:
    return Reported(time, number, trial, step, {"val loss": loss, "speed": speed})


def test_a_front_is_marked_and_the_parent_has_each_best_and_the_hypervolume_once():
    """Users find all good trials in MLflow, and compare sweeps by a single number."""
    fold = projection(metric=None, metrics=TWO, search="random")
    for number in (1, 2, 3):
        for event in begin(number, 1001.0, until=3):
            fold.apply(event)
    fold.apply(several(1002.0, 1, "t0001", 3, 0.5, 1.0))
    fold.apply(several(1002.0, 2, "t0002", 3, 0.7, 3.0))
    assert fold.take_entries()["t0002"].tags["hposvc.best"] == "true"
    fold.apply(several(1003.0, 3, "t0003", 3, 0.6, 4.0))
    for number in (1, 2, 3):
        fold.apply(Ended(1004.0, number, f"t000{number}"))
    entries = fold.take_entries()
    assert [entries[f"t000{n}"].tags["hposvc.best"] for n in (1, 2, 3)] == ["true", "false", "true"]
    assert not [point for point in entries[PARENT].points if point.name.startswith("best/")]
    fold.apply(Finished(1005.0, "COMPLETED", "trials"))
    parent = fold.take_entries()[PARENT]
    assert (parent.tags["hposvc.metric"], parent.tags["hposvc.goal"]) == (
        "val loss, speed",
        "minimize, maximize",
    )
    assert parent.points == [
        MetricPoint("best/val loss", 0.5, 1_005_000, 3),
        MetricPoint("best/speed", 4.0, 1_005_000, 3),
        MetricPoint("hypervolume", pytest.approx(0.1 * 3.0), 1_005_000, 3),
    ]


def test_params_are_told_once():
    fold = projection()
    for event in STORY[:3]:
        fold.apply(event)
    assert fold.take_entries()["t0001"].params == {"lr": 0.001}
    for event in STORY[3:]:
        fold.apply(event)
    assert fold.take_entries()["t0001"].params == {}


def test_a_failed_sweep_is_a_failed_run():
    parent = entries_of([*STORY[:4], Finished(1003.0, "FAILED", "no trial has a value")])[PARENT]
    assert parent.status == "FAILED"
    assert parent.tags["hposvc.reason"] == "no trial has a value"


def test_the_parent_has_the_users_description_and_tags():
    tags = projection().take_entries()[PARENT].tags
    assert tags["hposvc.description"] == "a valley"
    description = entries_of(STORY)[PARENT].tags["hposvc.description"]
    assert description.startswith("a valley\n\n**Best: t0003**, val loss 0.3 at step ")
    assert "trials (" in description
    assert (tags["team"], tags["ticket"], tags["hposvc.sweep"]) == ("vision", "17", "s-1")


def test_a_simulated_clock_starts_when_the_sweep_was_created():
    engine = {"type": "simulate", "curve": "some:curve"}
    fold = projection(trainable=None, engine=engine)
    fold.apply(Attached(0.0, "here:1"))
    fold.apply(begin(1, 2.5)[0])
    assert fold.take_entries()["t0001"].start == 1_002_500


@given(st.sets(st.integers(0, len(STORY))))
@settings(max_examples=60, deadline=None)
def test_told_in_any_portions_it_comes_to_the_same(cuts: set[int]):
    fold, points = projection(), {}
    tags: dict[str, dict[str, str]] = {}
    ends: dict[str, object] = {}
    edges = sorted({0, *cuts, len(STORY)})
    for first, last in itertools.pairwise(edges):
        for event in STORY[first:last]:
            fold.apply(event)
        for name, entry in fold.take_entries().items():
            points.setdefault(name, []).extend(entry.points)
            tags.setdefault(name, {}).update(entry.tags)
            ends[name] = (entry.status, entry.end) if entry.tags else ends[name]
    expected = entries_of(STORY)
    assert points == {name: entry.points for name, entry in expected.items()}
    assert tags == {name: entry.tags for name, entry in expected.items()}
    assert ends == {name: (entry.status, entry.end) for name, entry in expected.items()}


def test_a_trial_s_first_word_on_its_samples_is_told_once_and_each_has_a_digest():
    fold = projection()
    for event in STORY[:3]:
        fold.apply(event)
    fold.take_entries()
    same = DataSet("sums", "training", 5, "0a1b")
    data = (same, replace(same, context="validation"), DataSet("sums", "validation", 2))
    fold.apply(Described(1002.6, 1, "t0001", data))
    first, unread = fold.take_entries()["t0001"].inputs
    assert first == same
    assert unread.digest.startswith("unread-")
    fold.apply(Described(1002.7, 1, "t0001", (replace(same, digest="other"),)))
    fold.apply(reported(1003.0, 1, "t0001", 1, 0.9))
    assert fold.take_entries()["t0001"].inputs == ()
    assert fold.current_entry("t0001").inputs == (first, unread)


def test_runs_say_with_which_values_finalists_were_trained():
    parameters = {"lr": {"min": 1e-5, "max": 0.1, "log": True}, "width": 64}
    ours = projection(parameters=parameters, finalists={"top": 1, "set": {"width": 512}})
    assert ours.current_entry(PARENT).tags["hposvc.finalists.width"] == "512"


def test_the_energy_so_far_and_its_co2_are_metrics_of_the_sweep():
    names = {point.name for point in entries_of(STORY)[PARENT].points}
    assert not names & {"energy_kwh", "co2_kg"}, "nothing was measured"
    fold = projection(price={"co2_kg_per_kwh": 0.5})
    for event in STORY:
        fold.apply(replace(event, energy_kwh=2.0) if isinstance(event, Failed | Ended) else event)
    points = fold.take_entries()[PARENT].points
    values = {
        name: [p.value for p in points if p.name == name] for name in ("energy_kwh", "co2_kg")
    }
    assert values == {"energy_kwh": [2.0, 4.0, 6.0, 8.0], "co2_kg": [1.0, 2.0, 3.0, 4.0]}
