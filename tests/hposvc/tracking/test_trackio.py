"""Runs in Trackio, as Trackio reads them: each row once, whenever the writer dies."""

import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outboxes import send_all

from hposvc import spec as specs
from hposvc.events import (
    Attached,
    Closed,
    Decided,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
)
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec.sinks import SINKS, SinkType
from hposvc.state.sweep import SweepState
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.recorder_process import Recorder, RestartedProcess
from hposvc.tracking.sink import Setting
from trainables.order import Order

trackio = pytest.importorskip("trackio")
from trackio.sqlite_storage import SQLiteStorage  # noqa: E402

from hposvc.tracking.trackio import Trackio  # noqa: E402

ALONE = {"tracking": {"send_to": ["trackio"]}}
PAGE = Path(__file__).parents[3] / "docs" / "trackio.md"
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Trackio's databases, here and in processes that a test starts."""
    path = tmp_path / "trackio"
    monkeypatch.setenv("TRACKIO_DIR", str(path))
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", path)  # read when it was imported
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", path)
    return path


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    spec = specs.restore(row.spec)
    return Outbox(row, spec, journal, lambda: Trackio(Setting(home, journal, row, spec)))


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


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def stored(simulated, home: Home) -> tuple[SweepRow, Journal, str]:
    """Return a simulated sweep, and what a writer stored that nobody disturbed."""
    row, journal = simulated(**ALONE)
    send_all(outbox(home, row, journal))
    assert journal.cursor(row.id, "trackio") == journal.last(row.id)
    return row, journal, contents(row.id)


def test_trackio_reads_every_report_of_every_trial(stored):
    row, journal, _ = stored
    reports = [event for _, event in journal.read(row.id) if isinstance(event, Reported)]
    trials = {event.trial for event in reports}
    runs = runs_of(row.id)
    assert set(runs) == {*trials, "sweep"}
    diverged = 0
    for trial in trials:
        expected = [event for event in reports if event.trial == trial]
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
    for _, event in journal.read(row.id):
        if isinstance(event, Proposed):
            config = runs[event.trial].config
            assert {name: config[name] for name in event.params} == event.params
            assert config["hposvc.state"] in ("COMPLETED", "STOPPED"), config
    best = [name for name, run in runs.items() if run.config.get("hposvc.best") == "true"]
    assert len(best) == 1
    assert runs["sweep"].config["hposvc.state"] == "COMPLETED"
    last = logs_of(runs["sweep"])[-1]
    assert (last["step"], last["trials"]) == (12, 12)
    assert last["best/loss"] == min(log["loss"] for log in logs_of(runs[best[0]]))


@given(data=st.data())
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_is_lost_no_row_stays_away_and_none_comes_twice(
    stored, home: Home, data: st.DataObject
):
    row, journal, whole = stored
    last = journal.last(row.id)
    names = ["sweep", *(f"t{number:04d}" for number in range(1, 13))]
    lost = data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True), label="runs")
    cursor = data.draw(st.integers(0, last), label="cursor")
    for name, run in runs_of(row.id).items():
        assert name not in lost or run.delete()
    journal.rewind(row.id, "trackio", cursor)
    sender = outbox(home, row, journal)
    sender.open()
    sender.turn()
    assert contents(row.id) == whole
    assert journal.cursor(row.id, "trackio") == last


def test_a_resume_stores_nothing_again(stored, home: Home):
    row, journal, whole = stored
    sender = outbox(home, row, journal)
    sender.recheck()
    send_all(sender)
    assert contents(row.id) == whole


def test_a_deleted_project_is_stored_anew(stored, home: Home):
    row, journal, whole = stored
    assert trackio.delete_project(row.id, force=True)
    send_all(outbox(home, row, journal))
    assert contents(row.id) == whole


def test_a_writer_that_is_killed_between_transactions_leaves_each_row_once(simulated, home: Home):
    row, journal = simulated(**ALONE)
    chance = random.Random(7)
    for _ in range(6):
        child = os.fork()
        if child == 0:
            try:
                store_and_die(home, row, chance.randint(0, 12))
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert journal.cursor(row.id, "trackio") == 0
    send_all(outbox(home, row, journal))
    killed = contents(row.id)
    trackio.delete_project(row.id, force=True)
    send_all(outbox(home, row, journal))
    assert contents(row.id) == killed


def store_and_die(home: Home, row: SweepRow, count: int) -> None:
    """Store this many runs of a sweep, and be killed; in a process of its own."""
    store, left = Trackio._store, iter(range(count))

    def store_or_die(self: Trackio, *given: Any) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        store(self, *given)

    Trackio._store = store_or_die
    sender = outbox(home, row, home.journal())
    sender.open()
    sender.turn()


def begun(home: Home, identifier: str = "by-hand") -> tuple[SweepRow, Journal]:
    """Create a sweep of two trials that have not reported yet."""
    spec = specs.load(
        {
            "project": "begun",
            "trainable": "trainables.zoo.digits:DigitsCNN",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": 3},
            "parameters": {
                "lr": {"min": 1e-5, "max": 1e-1, "log": True},
                "seed": {"values": [2**70, 1]},
            },
            "trials": {"max": 40, "parallel": 2},
            **ALONE,
        }
    )
    now = time.time()
    row = SweepRow(identifier, spec.name, spec.project, now, specs.dump(spec), {})
    journal = home.journal()
    assert journal.create(row)
    add(journal, row, Attached(now, "here:1"))
    for number in (1, 2):
        trial, params = f"t{number:04d}", {"lr": number / 1000, "seed": 2**70}
        order = Order(number, trial, params, None, 1, 3)
        add(journal, row, Proposed(now, trial, params, {}, 3), Ordered(now, order))
    return row, journal


def add(journal: Journal, row: SweepRow, *events: Event) -> None:
    journal.append(row.id, journal.last(row.id), list(events))


def report(row: SweepRow, trial: int, step: int, **metrics: float) -> Reported:
    return Reported(row.created + step, trial, f"t{trial:04d}", step, metrics)


def test_trials_that_failed_stopped_or_never_reported_are_told_apart(home: Home):
    row, journal = begun(home)
    now = row.created
    add(
        journal,
        row,
        report(row, 2, 1, loss=math.inf),
        report(row, 2, 2, loss=0.5),
        Failed(now + 3, 1, "t0001", "user", "Traceback\nValueError: lr"),
        Decided(now + 4, "t0002", 2, 2, "stop", "rung"),
        Ended(now + 5, 2, "t0002"),
        Closed(now + 6, "trials"),
        Finished(now + 7, "COMPLETED", "trials"),
    )
    send_all(outbox(home, row, journal))
    runs = runs_of(row.id)
    states = {name: run.config["hposvc.state"] for name, run in runs.items()}
    assert states == {"t0001": "FAILED", "t0002": "STOPPED", "sweep": "COMPLETED"}
    assert runs["t0001"].config["hposvc.reason"] == "user"
    assert logs_of(runs["t0001"]) == []
    assert [log["loss"] for log in logs_of(runs["t0002"])] == [math.inf, 0.5]


def test_values_and_names_that_trackio_can_not_hold_are_written_as_it_does(home: Home):
    row, journal = begun(home)
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
    row, journal = begun(home)
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


def test_metrics_wait_for_more_unless_a_trial_begins_or_ends(home: Home):
    row, journal = begun(home)
    sender = outbox(home, row, journal)
    sender.open()
    assert sender.read()
    sender.send_pending()
    for step in (1, 2):
        add(journal, row, report(row, 1, step, loss=1 / step))
        assert not sender.read()
    add(journal, row, report(row, 1, 3, loss=0.1), Ended(row.created + 4, 1, "t0001"))
    assert sender.read()
    sender.send_pending()
    assert [log["loss"] for log in logs_of(runs_of(row.id)["t0001"])] == [1.0, 0.5, 0.1]


def test_a_sweep_with_the_id_of_a_removed_one_has_runs_of_its_own(stored, home: Home):
    row, journal, _ = stored
    again = Home.of(home.path / "other", {})
    spec = specs.restore(row.spec)
    later = replace(row, created=row.created + 60)
    journal = again.journal()
    assert journal.create(later)
    add(journal, later, Attached(later.created, "here:1"))
    send_all(Outbox(later, spec, journal, lambda: Trackio(Setting(again, journal, later, spec))))
    names = [run.name for run in trackio.Api().runs(row.id)]
    assert names.count("sweep") == 2


def test_a_writer_leaves_no_thread_and_listens_nowhere(simulated, home: Home):
    row, journal = simulated(**ALONE)
    sockets, threads = psutil.Process().net_connections, threading.enumerate
    before = sockets(), threads()
    send_all(outbox(home, row, journal))
    assert (sockets(), threads()) == before


def test_an_id_that_is_trackios_own_is_refused_before_anything_is_stored(home: Home, folder: Path):
    row, journal = begun(home, "registry-1")
    with pytest.raises(ValueError, match="registry-"):
        outbox(home, row, journal).open()
    assert not folder.exists()


def test_a_recorder_of_its_own_stores_them(simulated, home: Home, tracked):
    row, journal = simulated(**ALONE)
    with Recorder(home, row.id, specs.restore(row.spec), journal) as recorder:
        pass
    assert (recorder.behind, recorder.waiting, tracked.all()) == (0, [], [])
    assert len(runs_of(row.id)) == 13
    assert (home.folder(row.id, None) / "logs" / "recorder.log").read_text() == ""


def kill(recorder: RestartedProcess) -> None:
    """Kill a recorder's process, which has neither children nor ports."""
    process = psutil.Process(recorder.pid)
    assert (process.children(), process.net_connections("tcp")) == ([], [])
    os.kill(recorder.pid, signal.SIGKILL)
    wait_until(lambda: recorder._process.poll() is not None)


@pytest.mark.full
def test_a_recorder_that_is_killed_again_and_again_loses_no_step_and_repeats_none(home: Home):
    row, journal = begun(home)
    spec = specs.restore(row.spec)
    for step in (1, 2, 3):
        with Recorder(home, row.id, spec, journal) as recorder:
            add(journal, row, report(row, 1, step, loss=1 / step), report(row, 2, step, loss=step))
            before = journal.last(row.id) - 1
            wait_until(lambda least=before: journal.cursor(row.id, "trackio") >= least)
            kill(recorder._processes["trackio"])
            recorder.turn(SweepState(spec), [])
    assert recorder.behind == 0
    runs = runs_of(row.id)
    for name, losses in {"t0001": [1.0, 1 / 2, 1 / 3], "t0002": [1.0, 2.0, 3.0]}.items():
        logs = logs_of(runs[name])
        assert [(log["step"], log["loss"]) for log in logs] == list(
            zip((1, 2, 3), losses, strict=True)
        )


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


@pytest.mark.full
def test_the_blocks_of_the_page_run_a_sweep_and_read_it(tmp_path: Path, folder: Path):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    script = tmp_path / "page.py"
    script.write_text("".join(blocks))
    environment = {**os.environ, "HPOSVC_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if re.match(r"t\d{4} |sweep ", line)]
    assert sorted(line[0] for line in lines) == ["sweep", *(f"t{n:04d}" for n in range(1, 7))]
    assert {line[1] for line in lines} <= {"COMPLETED", "STOPPED"}
    assert len(list(folder.glob("*.db"))) == 1
