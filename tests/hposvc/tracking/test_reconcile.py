"""If these fail, `hposvc doctor ID` misses differences, or loses data."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.entities import Dataset, DatasetInput
from outboxes import add, begun, mlflow_outbox, send_all, told_once

from hposvc.events import Described, Proposed
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.journal.lease import Lease
from hposvc.tracking.answers import MlflowComparison
from hposvc.tracking.diff import compare_points
from hposvc.tracking.mlflow_client import Tracker, TrackerError, held_data
from hposvc.tracking.projection import MetricPoint, RunContent
from hposvc.tracking.reconcile import Reconciler
from trainables.dataset import DataSet

Told = tuple[SweepRow, Journal, Reconciler]


@pytest.fixture
def told(simulated, home: Home, kept: Path) -> Told:
    """Return an ended sweep that MLflow has completely."""
    few = {"trials": {"max": 3, "parallel": 2}, "initial": [{"lr": 0.05}]}
    row, journal = told_once(kept, home, lambda: tell(home, *simulated(**few)))
    return row, journal, Reconciler(home, journal, row)


def tell(home: Home, row: SweepRow, journal: Journal) -> None:
    send_all(mlflow_outbox(home, row, journal))


def seen(found: MlflowComparison) -> set[tuple[str, str, str]]:
    return {
        (difference.run, difference.what, difference.remedy) for difference in found.differences
    }


def held(tracked, row: SweepRow) -> dict[str, object]:
    """Return everything that hposvc sends, without the ids of runs."""
    return {
        name: (run.info.status, run.info.end_time, run.data.params, tracked.points(run))
        for name, run in tracked.runs(row.id).items()
    }


def test_infinity_is_the_largest_number_that_mlflow_holds(tracked, home: Home):
    tracker = Tracker(home, home.tracking_uri, "valleys", "s-1")
    tracker.open()
    tags = {"hposvc.sweep": "s-1", "hposvc.trial": "t0001", "hposvc.state": "RUNNING"}
    points = [MetricPoint("loss", -math.inf, 1, 1), MetricPoint("loss", math.inf, 2, 2)]
    tracker.send(tracker.create("t0001", 1, tags), RunContent(points=points))
    stored = tracker.points(tracker.runs()["t0001"][0], "loss")
    assert (
        list(
            compare_points(
                "t0001", "loss", stored, RunContent(points=points), RunContent(points=points)
            )
        )
        == []
    )


def test_a_sweep_that_was_told_agrees_in_every_point(told, tracked):
    row, _, reconciler = told
    comparison = reconciler.compare()
    assert (comparison.agrees, comparison.differences, comparison.runs) == (True, (), 4)
    assert comparison.points == sum(
        len(tracked.points(run)) for run in tracked.runs(row.id).values()
    )
    points = tracked.points(tracked.runs(row.id)["t0001"])
    assert any(math.isnan(float(value)) for *_, value in points)


def lose_a_run(client, run, other):
    client.delete_run(run.info.run_id)
    return ("t0002", "run", "tell")


def change_the_best(client, run, other):
    client.set_tag(run.info.run_id, "hposvc.best", "perhaps")
    return ("t0002", "tag hposvc.best", "tell")


def move_it(client, run, other):
    client.set_tag(run.info.run_id, "mlflow.parentRunId", other.info.run_id)
    return ("t0002", "tag mlflow.parentRunId", "tell")


def end_it_otherwise(client, run, other):
    client.set_terminated(run.info.run_id, "FAILED")
    return ("t0002", "status", "tell")


def twin(client, run, other):
    tags = {name: run.data.tags[name] for name in ("hposvc.sweep", "hposvc.trial", "hposvc.state")}
    client.create_run(run.info.experiment_id, start_time=1, tags=tags)
    return ("t0002", "run", "tell")


def stranger(client, run, other):
    tags = {"hposvc.sweep": run.data.tags["hposvc.sweep"], "hposvc.state": "PENDING"}
    client.create_run(run.info.experiment_id, tags={**tags, "hposvc.trial": "t0099"})
    return ("t0099", "run", "tell")


def a_point_twice(client, run, other):
    [first, *_] = client.get_metric_history(run.info.run_id, "loss")
    client.log_metric(run.info.run_id, "loss", first.value, first.timestamp + 1, first.step)
    return ("t0002", "points of loss", "renew")


def a_point_of_a_step_that_never_was(client, run, other):
    client.log_metric(run.info.run_id, "loss", 0.0, 1, 1_000)
    return ("t0002", "points of loss", "renew")


DAMAGES = (
    *(lose_a_run, change_the_best, move_it, end_it_otherwise),
    *(twin, stranger, a_point_twice, a_point_of_a_step_that_never_was),
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_each_kind_of_damage_is_told_by_name_and_mended(told, tracked, damage: Callable):
    row, _, reconciler = told
    before = held(tracked, row)
    runs = tracked.runs(row.id)
    expected = damage(tracked.client, runs["t0002"], runs["t0003"])
    comparison = reconciler.compare()
    assert not comparison.agrees
    assert seen(comparison) == {expected}
    mended = reconciler.mend()
    assert (mended.agrees, mended.stance, mended.differences) == (True, "mended", ())
    assert held(tracked, row) == before


def test_what_the_journal_says_and_nobody_told_is_missing(simulated, home: Home):
    row, journal = simulated(trials={"max": 2, "parallel": 2})
    reconciler = Reconciler(home, journal, row)
    comparison = reconciler.compare()
    assert (comparison.runs, comparison.agrees) == (0, False)
    assert seen(comparison) == {(name, "run", "tell") for name in ("", "t0001", "t0002")}
    assert reconciler.mend().agrees
    assert journal.cursor(row.id, "mlflow") == journal.last(row.id)


def test_a_lost_data_set_is_told_again_and_the_user_s_own_stays(home: Home, tracked):
    row, journal = begun(home, count=1)
    data = (DataSet("sums", "training", 5, "0a1b"), DataSet("sums", "validation", 2, "2c3d"))
    tell(home, row, journal)
    reconciler = Reconciler(home, journal, row)
    add(journal, row, Described(row.created, 1, "t0001", data))
    assert seen(reconciler.compare()) == {("t0001", "data set sums", "tell")}
    run = tracked.runs(row.id)["t0001"].info.run_id
    user_data = DatasetInput(Dataset("theirs", "9f", "code", "{}"), [])
    tracked.client.log_inputs(run, [user_data])
    assert reconciler.mend().agrees
    logged = held_data(tracked.runs(row.id)["t0001"])
    assert logged == {("sums", "0a1b"), ("sums", "2c3d"), ("theirs", "9f")}
    tracker = reconciler.tracker
    assert tracker.has_others(tracked.runs(row.id)["t0001"], RunContent(inputs=data))
    assert not tracker.has_others(
        tracked.runs(row.id)["t0001"],
        RunContent(inputs=(*data, DataSet("theirs", "training", 1, "9f"))),
    )


def test_what_is_a_users_own_is_no_difference_and_outlives_the_mending(told, tracked):
    row, _, reconciler = told
    client, run = tracked.client, tracked.runs(row.id)["t0002"]
    user_run = client.create_run(run.info.experiment_id, tags={"hposvc.sweep": row.id})
    client.log_metric(run.info.run_id, "mine", 1.0)
    client.log_param(run.info.run_id, "my_param", "x")
    client.set_tag(run.info.run_id, "mine", "yes")
    assert reconciler.compare().differences == ()
    client.delete_tag(run.info.run_id, "hposvc.reason")
    assert reconciler.mend().agrees
    again = client.get_run(run.info.run_id)
    assert again.info.lifecycle_stage == "active"
    assert (again.data.metrics["mine"], again.data.tags["mine"]) == (1.0, "yes")
    assert client.get_run(user_run.info.run_id).info.lifecycle_stage == "active"


def test_a_run_made_anew_leaves_the_old_one_to_the_user_who_logged_in_it(told, tracked):
    row, _, reconciler = told
    client, run = tracked.client, tracked.runs(row.id)["t0002"]
    client.log_metric(run.info.run_id, "mine", 1.0)
    a_point_twice(client, run, run)
    assert reconciler.mend().agrees
    old = client.get_run(run.info.run_id)
    assert (old.info.lifecycle_stage, old.data.metrics["mine"]) == ("active", 1.0)
    assert old.data.tags["hposvc.replaced"] == "t0002"
    assert "hposvc.sweep" not in old.data.tags
    assert tracked.runs(row.id)["t0002"].info.run_id != run.info.run_id


def test_a_param_that_the_trial_logged_otherwise_is_told_and_stays(simulated, home, tracked):
    row, journal = simulated(trials={"max": 1})
    tracker = Tracker(home, home.tracking_uri, row.project, row.id)
    tracker.open()
    outbox = mlflow_outbox(home, row, journal, tracker)
    outbox.open()
    tags = {"hposvc.sweep": row.id, "hposvc.trial": "t0001", "hposvc.state": "PENDING"}
    run = tracker.create("t0001", None, tags)
    tracked.client.log_param(run, "lr", "1e-3")
    reconciler = Reconciler(home, journal, row)
    assert reconciler.mend().agrees
    comparison = reconciler.compare()
    assert (comparison.agrees, seen(comparison)) == (True, {("t0001", "param lr", "kept")})


def test_while_a_driver_is_at_work_nothing_is_changed(told, tracked):
    row, journal, reconciler = told
    tracked.client.delete_tag(tracked.runs(row.id)["t0002"].info.run_id, "hposvc.reason")
    lease = Lease(journal.store, row.id)
    lease.acquire()
    comparison = reconciler.mend()
    lease.release()
    assert (comparison.stance, comparison.agrees) == ("driven", False)
    assert "hposvc.reason" not in tracked.runs(row.id)["t0002"].data.tags


def test_a_driver_that_is_ahead_of_its_recorder_is_no_difference(home: Home):
    row, journal = begun(home, count=1)
    outbox = mlflow_outbox(home, row, journal)
    outbox.open()
    outbox.turn()
    outbox.prepare()
    add(journal, row, Proposed(row.created, "t0009", {"lr": 0.1}, {}, 1))
    lease = Lease(journal.store, row.id)
    lease.acquire()
    comparison = Reconciler(home, journal, row).compare()
    lease.release()
    assert (comparison.stance, comparison.differences, comparison.runs) == ("driven", (), 2)
    without_driver = Reconciler(home, journal, row).compare()
    assert ("t0009", "run", "tell") in seen(without_driver)
    # The run was created in advance for a coming trial.
    assert ("t0002", "run", "tell") in seen(without_driver)


def test_a_tracker_out_of_reach_is_said_without_its_password(home: Home, simulated, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    row, journal = simulated(tracking={"uri": "http://me:secret@127.0.0.1:9"})
    with pytest.raises(TrackerError, match="MLflow at") as raised:
        Reconciler(home, journal, row).compare()
    assert "secret" not in str(raised.value)


def test_a_large_simulation_has_nothing_to_compare(simulated, home: Home):
    row, journal = simulated(trials={"max": 201, "parallel": 8})
    comparison = Reconciler(home, journal, row).compare()
    assert (comparison.stance, comparison.agrees) == ("unrecorded", True)


@pytest.mark.parametrize("least", [1, 2])
def test_further_seeds_are_runs_below_their_trial_and_agree(least, simulated, home, tracked):
    seeds = {"min": least, "max": 3}
    noisy = {"type": "simulate", "curve": "simulated_sweeps:noisy"}
    row, journal = simulated(engine=noisy, trials={"max": 6, "parallel": 2, "seeds": seeds})
    for _ in range(2):  # told a second time nothing changes
        tell(home, row, journal)
        comparison = Reconciler(home, journal, row).compare()
        assert (comparison.agrees, comparison.differences) == (True, ())
    runs = tracked.runs(row.id)
    seeded = {name: run for name, run in runs.items() if ".s" in name}
    assert seeded
    for name, run in seeded.items():
        trial, number = name.split(".s")
        assert run.data.tags["mlflow.parentRunId"] == runs[trial].info.run_id
        assert run.data.tags["hposvc.seed"] == number
        assert run.data.tags["mlflow.runName"].startswith(f"{trial} seed {number}")
        assert run.data.params == runs[trial].data.params
        assert run.info.status == "FINISHED"
    [best] = [run for run in runs.values() if run.data.tags.get("hposvc.best") == "true"]
    assert best.data.tags["hposvc.seeds"] == "3"
    name = best.data.tags["hposvc.trial"]
    values = [best.data.metrics["loss"]]
    values += [run.data.metrics["loss"] for key, run in seeded.items() if key.startswith(name)]
    assert len(values) == 3
    assert best.data.metrics["objective"] == pytest.approx(sum(values) / 3)
    assert runs[""].data.metrics["final/mean"] == pytest.approx(sum(values) / 3)
    assert runs[""].data.metrics["best/loss"] == pytest.approx(sum(values) / 3)
