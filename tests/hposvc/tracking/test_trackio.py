"""Runs in Trackio, as Trackio reads them: each row once, whenever the writer dies."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from outboxes import (
    add,
    begun,
    complete,
    fail_and_stop,
    outbox_to,
    params_of,
    report,
    reports_of,
    send_all,
)

from hposvc import spec as specs
from hposvc.events import Attached, Reported
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec.sinks import SINKS, SinkType
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.recorder_process import Recorder

trackio = pytest.importorskip("trackio")
from trackio.sqlite_storage import SQLiteStorage  # noqa: E402

from hposvc.tracking.trackio import Trackio  # noqa: E402

ALONE = {"tracking": {"send_to": ["trackio"]}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Trackio's databases, here and in processes that a test starts."""
    path = tmp_path / "trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(path))
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", path)  # read when it was imported
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", path)
    return path


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    return outbox_to(Trackio, home, row, journal)


def runs_of(sweep: str) -> dict[str, Any]:
    """Return a sweep's runs by name; no name may be there twice."""
    runs = list(trackio.Api().runs(sweep))
    named = {run.name: run for run in runs}
    assert len(named) == len(runs)
    return named


def logs_of(run: Any) -> list[dict[str, Any]]:
    """Return the rows of a run that have metrics."""
    rows = SQLiteStorage.get_logs(run.project, run_id=run.id)
    return [row for row in rows if row.keys() > {"step", "timestamp"}]


def contents(sweep: str) -> str:
    """Return all runs of a sweep with their rows and configurations, as text: NaN equals NaN."""
    return repr(
        {
            name: (run.id, run.config, SQLiteStorage.get_logs(sweep, run_id=run.id))
            for name, run in runs_of(sweep).items()
        }
    )


@pytest.fixture
def stored(simulated, home: Home) -> tuple[SweepRow, Journal, str]:
    """Return a simulated sweep, and what a writer stored that nobody disturbed."""
    row, journal = simulated(**ALONE)
    send_all(outbox(home, row, journal))
    assert journal.cursor(row.id, "trackio") == journal.last(row.id)
    return row, journal, contents(row.id)


def test_trackio_reads_every_report_of_every_trial(stored):
    row, journal, _ = stored
    reports = reports_of(row, journal)
    runs = runs_of(row.id)
    assert set(runs) == {*reports, "sweep"}
    diverged = 0
    for trial, expected in reports.items():
        rows = [log for log in logs_of(runs[trial]) if "loss" in log]
        assert [log["step"] for log in rows] == [event.step for event in expected]
        for log, event in zip(rows, expected, strict=True):
            assert log["acc@1"] == event.metrics["acc@1"]
            assert repr(log["loss"]) == repr(event.metrics["loss"])
            diverged += math.isnan(log["loss"])
    assert diverged > 0


def test_the_configuration_of_a_run_has_its_parameters_and_its_outcome(stored):
    row, journal, _ = stored
    runs = runs_of(row.id)
    for trial, params in params_of(row, journal).items():
        config = runs[trial].config
        assert {name: config[name] for name in params} == params
        assert config["hposvc.state"] in ("COMPLETED", "STOPPED"), config
    best = [name for name, run in runs.items() if run.config.get("hposvc.best") == "true"]
    assert len(best) == 1
    assert runs["sweep"].config["hposvc.state"] == "COMPLETED"
    last = logs_of(runs["sweep"])[-1]
    assert (last["step"], last["trials"]) == (12, 12)
    assert last["best/loss"] == min(log["loss"] for log in logs_of(runs[best[0]]))


def test_trials_that_failed_stopped_or_never_reported_are_told_apart(home: Home):
    row, journal = begun(home, seed=2**70, **ALONE)
    fail_and_stop(row, journal)
    complete(row, journal)
    send_all(outbox(home, row, journal))
    runs = runs_of(row.id)
    states = {name: run.config["hposvc.state"] for name, run in runs.items()}
    assert states == {"t0001": "FAILED", "t0002": "STOPPED", "sweep": "COMPLETED"}
    assert runs["t0001"].config["hposvc.reason"] == "user"
    assert logs_of(runs["t0001"]) == []
    assert [log["loss"] for log in logs_of(runs["t0002"])] == [math.inf, 0.5]


def test_values_and_names_that_trackio_can_not_hold_are_written_as_it_does(home: Home):
    row, journal = begun(home, seed=2**70, **ALONE)
    metrics = {"loss": 1.0, "step": 7.0, "time": 0.1, "__odd": 2.0, "ä/b c": 3.0}
    add(journal, row, Reported(row.created + 1, 1, "t0001", 1, metrics))
    send_all(outbox(home, row, journal))
    run = runs_of(row.id)["t0001"]
    assert run.config["seed"] == str(2**70)
    (log,) = logs_of(run)
    assert log["step"] == 1
    names = {name: value for name, value in log.items() if name not in ("timestamp", "step")}
    assert names == {
        "loss": 1.0,
        "objective": 1.0,
        "__step": 7.0,
        "__time": 0.1,
        "____odd": 2.0,
        "ä/b c": 3.0,
    }


def test_rows_come_while_the_sweep_runs_also_to_a_run_that_was_renamed(home: Home):
    row, journal = begun(home, seed=2**70, **ALONE)
    sender = outbox(home, row, journal)
    sender.open()
    sender.turn()
    assert set(runs_of(row.id)) == {"sweep", "t0001", "t0002"}
    runs_of(row.id)["t0001"].rename("mine")
    for step in (1, 2):
        add(journal, row, report(row, 1, step, loss=1 / step))
        sender.turn()
    assert set(runs_of(row.id)) == {"sweep", "mine", "t0002"}
    assert [log["loss"] for log in logs_of(runs_of(row.id)["mine"])] == [1.0, 0.5]


def test_a_sweep_with_the_id_of_a_removed_one_has_runs_of_its_own(stored, home: Home):
    row, journal, _ = stored
    again = Home.of(home.path / "other", {})
    later = replace(row, created=row.created + 60)
    journal = again.journal()
    assert journal.create(later)
    add(journal, later, Attached(later.created, "here:1"))
    send_all(outbox(again, later, journal))
    names = [run.name for run in trackio.Api().runs(row.id)]
    assert names.count("sweep") == 2


def test_an_id_that_is_trackios_own_is_refused_before_anything_is_stored(home: Home, folder: Path):
    row, journal = begun(home, "registry-1", **ALONE)
    with pytest.raises(ValueError, match="registry-"):
        outbox(home, row, journal).open()
    assert not folder.exists()


def test_without_trackio_the_sweep_is_recorded_elsewhere_and_says_so(
    simulated, home: Home, monkeypatch, caplog
):
    monkeypatch.setitem(
        SINKS,
        "trackio",
        SinkType("away:Away", "Trackio", "trackio_that_is_away", "hposvc[trackio]"),
    )
    row, journal = simulated(tracking={"send_to": ["trackio", "json_lines"]})
    with Recorder(home, row.id, specs.restore(row.spec), journal) as recorder:
        pass
    assert recorder.waiting == ["Trackio"]
    assert journal.cursor(row.id, "json_lines") == journal.last(row.id)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        "valley-1: nothing goes to Trackio: trackio_that_is_away is not installed; "
        "pip install 'hposvc[trackio]', and resume the sweep"
    )
