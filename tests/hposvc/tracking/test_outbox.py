"""The outbox: everything goes from the journal to MLflow, exactly once."""

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow.artifacts import load_text
from outboxes import add, begun, end, mlflow_outbox, report, told_once

from hposvc import spec as specs
from hposvc.errors import Fenced
from hposvc.events import Ended, Proposed, Reported
from hposvc.journal.home import REPORT, Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.reporting.writing import write
from hposvc.tracking.mlflow_client import Tracker
from hposvc.tracking.mlflow_names import legal_name
from hposvc.tracking.mlflow_server import QUIET
from hposvc.tracking.outbox import Outbox, follow
from hposvc.tracking.projection import EXPERIMENT


@pytest.fixture
def gone() -> Iterator[int]:
    """Return the end of a pipe whose other end a driver has closed."""
    reading, writing = os.pipe()
    os.close(writing)
    yield reading
    os.close(reading)


@pytest.fixture
def outbox(home: Home) -> Callable[[SweepRow, Journal], Outbox]:
    def make(row: SweepRow, journal: Journal) -> Outbox:
        return mlflow_outbox(home, row, journal)

    return make


@pytest.fixture
def tell(outbox, gone) -> Callable[[SweepRow, Journal], None]:
    """Return a function that sends a sweep as a recorder does whose driver is gone."""

    def tell_all(row: SweepRow, journal: Journal) -> None:
        sender = outbox(row, journal)
        sender.recheck()
        assert follow(sender, gone)

    return tell_all


@pytest.fixture
def told(simulated, tell, home: Home, kept: Path) -> tuple[SweepRow, Journal]:
    """Return a simulated sweep that MLflow has completely."""
    return told_once(kept, home, lambda: tell(*simulated()))


@pytest.fixture
def waiting(home: Home) -> tuple[SweepRow, Journal]:
    """Return a sweep on Ray that has just begun, with two trials of at most five."""
    return begun(home, "waiting-1", trials={"max": 5, "parallel": 3})


def expected_points(row: SweepRow, journal: Journal, trial: str) -> list[tuple[str, int, int, str]]:
    """Read the expected points from the journal: a simulation reports each step once."""
    names = {"loss": ("loss", "objective"), "acc@1": (legal_name("acc@1"),)}
    return sorted(
        (metric, event.step, round(1000 * (row.created + event.time)), repr(value))
        for _, event in journal.read(row.id)
        if isinstance(event, Reported) and event.trial == trial
        for name, value in event.metrics.items()
        for metric in names[name]
        if metric != "objective" or not math.isnan(value)
    )


def test_each_trial_is_a_run_with_its_params_its_points_and_its_end(told, tracked):
    row, journal = told
    runs = tracked.runs(row.id)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert all(run.info.end_time >= run.info.start_time for run in runs.values())
    parent = runs.pop("")
    points_by_run = {name: tracked.points(run) for name, run in runs.items()}
    assert points_by_run == {name: expected_points(row, journal, name) for name in runs}
    assert any(value == "nan" for points in points_by_run.values() for *_, value in points)
    for event in [event for _, event in journal.read(row.id) if isinstance(event, Proposed)]:
        expected = {name: str(value) for name, value in event.params.items()}
        assert runs[event.trial].data.params == expected
    losses = {name: run.data.metrics["loss"] for name, run in runs.items()}
    losses = {name: loss for name, loss in losses.items() if not math.isnan(loss)}
    best = [name for name, run in runs.items() if run.data.tags["hposvc.best"] == "true"]
    assert best == [min(losses, key=lambda name: losses[name])]
    assert parent.data.metrics["best/loss"] == losses[best[0]]
    assert sorted(runs) == [f"t{number:04d}" for number in range(1, 13)]
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert parent.info.run_name == row.id
    assert "mlflow.parentRunId" not in parent.data.tags
    experiment = tracked.client.get_experiment(parent.info.experiment_id)
    assert experiment.name == "valleys"


def test_runs_are_named_by_trial_state_and_sweep_and_the_best_is_first_by_rank(told, tracked):
    row, _ = told
    runs = tracked.runs(row.id)
    del runs[""]
    marks = {"COMPLETED": "", "STOPPED": " stopped", "FAILED": " failed (diverged)"}
    for name, run in runs.items():
        best = run.data.tags["hposvc.best"] == "true"
        mark = " best" if best else marks[run.data.tags["hposvc.state"]]
        assert run.info.run_name == f"{name}{mark} · {row.id}"
    ranked = sorted(runs.values(), key=lambda run: run.data.tags["hposvc.rank"])
    assert [run.data.tags["hposvc.best"] for run in ranked] == ["true"] + ["false"] * 11
    assert len({run.data.tags["hposvc.rank"] for run in ranked}) == 12


def test_a_name_that_people_gave_a_run_stays(told, tell, tracked):
    row, journal = told
    run = tracked.runs(row.id)["t0001"].info.run_id
    tracked.client.update_run(run, name="the one for the paper")
    tell(row, journal)
    assert tracked.runs(row.id)["t0001"].info.run_name == "the one for the paper"


def test_the_view_that_the_printed_address_opens_lists_the_best_first(told, tracked):
    row, _ = told
    runs = tracked.runs(row.id)
    experiment = tracked.client.get_experiment(runs[""].info.experiment_id)
    view = json.loads(experiment.tags[f"mlflow.sharedViewState.{row.id}"])
    order = f"{view['orderByKey']} {'ASC' if view['orderByAsc'] else 'DESC'}"
    listed = tracked.client.search_runs(
        [experiment.experiment_id], view["searchFilter"], order_by=[order]
    )
    assert len(listed) == 13
    assert listed[0].data.tags["hposvc.best"] == "true"
    assert listed[-1].info.run_id == runs[""].info.run_id
    assert view["selectedColumns"][:2] == ["metrics.`objective`", "tags.`hposvc.state`"]
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    assert f"runs/{runs[''].info.run_id}" in experiment.tags["mlflow.note.content"]
    best = listed[0].data.tags["hposvc.trial"]
    assert f"by {best}, best of 12" in experiment.tags["mlflow.note.content"]


def test_the_parent_holds_the_spec_the_packages_and_the_report(
    simulated, tell, tracked, home, tmp_path
):
    row, journal = simulated()
    write(home.folder(row.id, None), {REPORT: "<!doctype html>what came out"})
    tell(row, journal)
    parent = tracked.runs(row.id)[""]
    assert load_text(f"{parent.info.artifact_uri}/{REPORT}") == "<!doctype html>what came out"
    assert "\nmlflow==" in load_text(f"{parent.info.artifact_uri}/environment.txt")
    again = tmp_path / "spec.yaml"
    again.write_text(load_text(f"{parent.info.artifact_uri}/spec.yaml"))
    assert specs.dump(specs.load(again)) == row.spec


def test_told_twice_from_the_start_there_is_not_one_point_more(told, tell, tracked):
    row, journal = told
    before = everything(tracked, row)
    journal.rewind(row.id, "mlflow")
    tell(row, journal)
    assert everything(tracked, row) == before
    assert len(tracked.all(deleted=True)) == 13


def everything(tracked, row: SweepRow) -> dict[str, object]:
    return {
        name: (run.info, run.data.params, run.data.tags, tracked.points(run))
        for name, run in tracked.runs(row.id).items()
    }


def test_a_tracker_that_was_wiped_is_told_all_again(told, tell, tracked):
    row, journal = told
    points = {name: tracked.points(run) for name, run in tracked.runs(row.id).items()}
    for run in tracked.all():
        tracked.client.delete_run(run.info.run_id)
    tell(row, journal)
    assert points == {name: tracked.points(run) for name, run in tracked.runs(row.id).items()}


def test_a_run_that_the_journal_does_not_know_of_is_found_again(waiting, outbox, tracked):
    row, journal = waiting
    first = outbox(row, journal)
    first.open()
    first.turn()
    before = {name: run.info.run_id for name, run in tracked.runs(row.id).items()}
    journal.forget_runs(row.id, list(before))  # as if the recorder died before it recorded them
    journal.rewind(row.id, "mlflow")
    second = outbox(row, journal)
    second.open()
    second.turn()
    assert {name: run.info.run_id for name, run in tracked.runs(row.id).items()} == before
    assert {**before, EXPERIMENT: first.sink.tracker.open()} == journal.runs(row.id)


def test_a_parent_that_was_deleted_is_made_again_above_its_trials(waiting, outbox, gone, tracked):
    row, journal = waiting
    sender = outbox(row, journal)
    sender.open()
    sender.turn()
    tracked.client.delete_run(journal.run(row.id, ""))
    end(row, journal)
    assert follow(sender, gone)
    runs = tracked.runs(row.id)
    parent = runs.pop("")
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}


def test_what_a_users_own_mlflow_ended_is_put_right_at_the_end(waiting, outbox, gone, tracked):
    row, journal = waiting
    sender = outbox(row, journal)
    sender.open()
    sender.turn()
    end(row, journal)
    sender.turn()
    tracked.client.set_terminated(journal.run(row.id, "t0001"), "FAILED")
    sender.finish()
    assert tracked.runs(row.id)["t0001"].info.status == "FINISHED"


def test_runs_wait_for_the_next_trials_but_for_no_more_than_there_will_be(waiting, outbox):
    row, journal = waiting
    sender = outbox(row, journal)
    sender.open()
    sender.turn()
    sender.prepare()
    assert sorted(journal.runs(row.id)) == ["", EXPERIMENT, "t0001", "t0002", "t0003", "t0004"]
    proposals = [Proposed(row.created, f"t000{number}", {"lr": 0.1}, {}, 1) for number in (3, 4)]
    journal.append(row.id, journal.last(row.id), proposals)
    sender.turn()
    sender.prepare()
    assert sorted(journal.runs(row.id))[2:] == ["t0001", "t0002", "t0003", "t0004", "t0005"]


def test_points_of_a_trial_that_runs_wait_until_a_run_begins_or_ends(waiting, outbox, tracked):
    row, journal = waiting
    sender = outbox(row, journal)
    sender.open()
    assert sender.read()
    sender.send_pending()
    cursor = journal.cursor(row.id, "mlflow")
    add(journal, row, report(row, 1, 1, loss=0.5))
    assert not sender.read()
    assert journal.cursor(row.id, "mlflow") == cursor
    journal.append(row.id, journal.last(row.id), [Ended(row.created + 2, 1, "t0001")])
    assert sender.read()
    sender.send_pending()
    assert journal.cursor(row.id, "mlflow") == journal.last(row.id)
    run = tracked.runs(row.id)["t0001"]
    at = round(1000 * (row.created + 1))
    assert tracked.points(run) == [("loss", 1, at, "0.5"), ("objective", 1, at, "0.5")]


def test_runs_of_trials_that_never_came_are_taken_back(waiting, outbox, gone, tracked):
    row, journal = waiting
    sender = outbox(row, journal)
    sender.open()
    sender.turn()
    sender.prepare()
    end(row, journal)
    assert follow(sender, gone)
    assert sorted(tracked.runs(row.id)) == ["", "t0001", "t0002"]
    assert sorted(journal.runs(row.id)) == ["", EXPERIMENT, "t0001", "t0002"]
    deleted = [run for run in tracked.all(deleted=True) if run.info.lifecycle_stage == "deleted"]
    assert {run.info.status for run in deleted} == {"KILLED"}, "no trash shows a run that runs"


def test_a_recorder_that_another_one_has_overtaken_does_not_take_the_cursor_back(waiting, outbox):
    """Each on a host of its own, where the file that they share is none."""
    row, journal = waiting
    late, early = outbox(row, journal), outbox(row, journal)
    late.open()
    late.read()
    early.open()
    early.turn()
    add(journal, row, report(row, 1, 1, loss=0.5))
    early.turn()
    with pytest.raises(Fenced):
        late.send_pending()
    assert journal.cursor(row.id, "mlflow") == journal.last(row.id)


def test_a_trial_that_begins_while_they_are_taken_back_keeps_its_run(waiting, outbox, tracked):
    row, journal = waiting
    sender = outbox(row, journal)
    sender.open()
    sender.turn()
    sender.prepare()
    handed_out = journal.run(row.id, "t0003")
    proposed = Proposed(row.created, "t0003", {"lr": 0.1}, {}, 1)
    journal.append(row.id, journal.last(row.id), [proposed])
    sender.finish()
    assert tracked.runs(row.id)["t0003"].info.run_id == journal.run(row.id, "t0003") == handed_out
    assert "t0004" not in tracked.runs(row.id)


def test_simulated_trials_need_no_runs_ahead(simulated, outbox):
    row, journal = simulated()
    sender = outbox(row, journal)
    sender.open()
    sender.prepare()
    assert list(journal.runs(row.id)) == [EXPERIMENT]


def test_a_tracker_that_never_answered_is_not_waited_for_when_the_driver_is_gone(
    waiting, home, gone, monkeypatch
):
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    row, journal = waiting
    nobody = Tracker(home, "http://127.0.0.1:9", "waiting", row.id)
    sender = mlflow_outbox(home, row, journal, nobody)
    heard = []
    assert not follow(sender, gone, give_up_s=3600.0, answers=heard.append)
    assert heard == [False]
    assert journal.cursor(row.id, "mlflow") == 0
