"""Runs in files of W&B, as W&B's own reader reads them: each record once."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
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
from hposvc.journal.home import Home, find_ours
from hposvc.journal.journal import Journal, SweepRow
from hposvc.state.sweep import SweepState
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.projection import Point
from hposvc.tracking.recorder_process import Recorder
from hposvc.tracking.sink import Setting
from trainables.order import Order

pytest.importorskip("wandb")
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

from hposvc.tracking.wandb import Run, WandB, _rows

ALONE = {"tracking": {"send_to": ["wandb"]}}
PAGE = Path(__file__).parents[3] / "docs" / "wandb.md"
DEADLINE_S = 60.0


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    spec = specs.restore(row.spec)
    return Outbox(row, spec, journal, lambda: WandB(Setting(home, journal, row, spec)))


@dataclass
class Read:
    """A run as its file says."""

    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    exits: list[int] = field(default_factory=list)

    def take(self, record: Any) -> None:
        if record.HasField("run"):
            assert self.run is None
            self.run = record.run
            self.config = {
                item.key: json.loads(item.value_json) for item in record.run.config.update
            }
        if record.HasField("history"):
            self.rows.append(values(record.history.item))
            assert self.rows[-1]["_step"] == record.history.step.num
        if record.HasField("summary"):
            self.summary |= values(record.summary.update)
        if record.HasField("exit"):
            self.exits.append(record.exit.exit_code)


def values(items: Any) -> dict[str, Any]:
    keys = [item.nested_key[0] if item.nested_key else item.key for item in items]
    return {key: json.loads(item.value_json) for key, item in zip(keys, items, strict=True)}


def read(path: Path) -> Read:
    log, whole, numbers = DataStore(), Read(), []
    log.open_for_scan(str(path))
    while (data := log.scan_data()) is not None:
        record = Record.FromString(data)
        numbers.append(record.num)
        whole.take(record)
    log.close()
    assert numbers == list(range(1, len(numbers) + 1))
    return whole


def files(home: Home, row: SweepRow) -> list[Path]:
    return sorted(home.folder(row.id, None).glob("wandb/offline-run-*/run-*.wandb"))


def contents(home: Home, row: SweepRow) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files(home, row)}


def runs_of(home: Home, row: SweepRow) -> dict[str, Read]:
    """Return a sweep's runs by name; no name may be there twice."""
    runs = [read(path) for path in files(home, row)]
    named = {run.run.display_name: run for run in runs}
    assert len(named) == len(runs)
    return named


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def stored(simulated, home: Home) -> tuple[SweepRow, Journal, dict[str, bytes]]:
    """Return a simulated sweep, and what a writer wrote that nobody disturbed."""
    row, journal = simulated(**ALONE)
    send_all(outbox(home, row, journal))
    assert journal.cursor(row.id, "wandb") == journal.last(row.id)
    return row, journal, contents(home, row)


def test_wandb_reads_every_report_of_every_trial(stored, home: Home):
    row, journal, _ = stored
    reports = [event for _, event in journal.read(row.id) if isinstance(event, Reported)]
    trials = {event.trial for event in reports}
    runs = runs_of(home, row)
    assert set(runs) == {*trials, row.id}
    diverged = 0
    for trial in trials:
        expected = [event for event in reports if event.trial == trial]
        rows = [each for each in runs[trial].rows if "loss" in each]
        assert [each["_step"] for each in rows] == [event.step for event in expected]
        for each, event in zip(rows, expected, strict=True):
            assert each["acc@1"] == event.metrics["acc@1"]
            assert repr(each["loss"]) == repr(float(event.metrics["loss"]))
            diverged += math.isnan(each["loss"])
        steps = [each["_step"] for each in runs[trial].rows]
        assert steps == sorted(set(steps))
    assert diverged > 0


def test_a_run_has_its_sweep_its_parameters_and_its_outcome(stored, home: Home):
    row, journal, _ = stored
    runs = runs_of(home, row)
    for _, event in journal.read(row.id):
        if isinstance(event, Proposed):
            run = runs[event.trial]
            assert run.config == event.params
            assert (run.run.run_group, run.run.job_type) == (row.id, "trial")
            assert run.summary["hposvc.state"] in ("COMPLETED", "STOPPED")
            assert run.exits == [0]
    assert len({run.run.run_id for run in runs.values()}) == len(runs)
    best = [run for run in runs.values() if run.summary.get("hposvc.best") == "true"]
    assert len(best) == 1
    sweep = runs[row.id]
    assert (sweep.run.job_type, sweep.run.project) == ("sweep", row.project)
    assert (sweep.summary["hposvc.state"], sweep.exits) == ("COMPLETED", [0])
    assert (sweep.rows[-1]["_step"], sweep.rows[-1]["trials"]) == (12, 12)
    assert sweep.rows[-1]["best/loss"] == min(each["loss"] for each in best[0].rows)


@given(data=st.data())
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_wherever_files_are_torn_no_record_stays_away_and_none_comes_twice(
    stored, home: Home, data: st.DataObject
):
    row, journal, whole = stored
    for path in files(home, row):
        kept = data.draw(st.integers(-1, len(whole[path.name])), label=path.name)
        if kept < 0:
            path.unlink()
        else:
            os.truncate(path, kept)
    journal.rewind(row.id, "wandb", data.draw(st.integers(0, journal.last(row.id))))
    send_all(outbox(home, row, journal))
    assert contents(home, row) == whole


def test_a_file_of_several_blocks_is_cut_wherever_it_is_torn(home: Home):
    row, journal = begun(home)
    metrics = {f"{'long' * 500}{number}": float(number) for number in range(20)}
    for step in (1, 2):
        add(journal, row, Reported(row.created + step, 1, "t0001", step, {"loss": 1.0, **metrics}))
    send_all(outbox(home, row, journal))
    whole = contents(home, row)
    (large,) = [path for path in files(home, row) if path.stat().st_size > 3 * 32768]
    for kept in (32767, 32768, 32770, 2 * 32768 - 3, 2 * 32768 + 7, 3 * 32768):
        os.truncate(large, kept)
        send_all(outbox(home, row, journal))
        assert contents(home, row) == whole


def test_a_resume_writes_nothing_again(stored, home: Home):
    row, journal, whole = stored
    sender = outbox(home, row, journal)
    sender.recheck()
    send_all(sender)
    assert contents(home, row) == whole


def begun(home: Home) -> tuple[SweepRow, Journal]:
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
            "tags": {"team": "ä", "long": "x" * 70},
            **ALONE,
        }
    )
    now = time.time()
    row = SweepRow("by-hand", spec.name, spec.project, now, specs.dump(spec), {})
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
        report(row, 2, 2, loss=0.5, _step=9.0),
        Failed(now + 3, 1, "t0001", "user", "Traceback\nValueError: lr"),
        Decided(now + 4, "t0002", 2, 2, "stop", "rung"),
        Ended(now + 5, 2, "t0002"),
    )
    send_all(outbox(home, row, journal))
    assert [run.exits for run in runs_of(home, row).values()] == [[], [], []]
    add(journal, row, Closed(now + 6, "trials"), Finished(now + 7, "COMPLETED", "trials"))
    send_all(outbox(home, row, journal))
    runs = runs_of(home, row)
    failed, stopped, sweep = runs["t0001"], runs["t0002"], runs[row.id]
    assert (failed.summary["hposvc.state"], failed.exits, failed.rows) == ("FAILED", [1], [])
    assert (failed.summary["hposvc.reason"], failed.config["seed"]) == ("user", 2**70)
    assert (stopped.summary["hposvc.state"], stopped.exits) == ("STOPPED", [0])
    assert [each["loss"] for each in stopped.rows] == [math.inf, 0.5]
    assert (stopped.rows[1]["_step"], stopped.rows[1]["__step"]) == (2, 9.0)
    assert (sweep.exits, list(sweep.run.tags)) == ([0], ["team=ä"])


def test_a_value_that_changes_after_a_report_is_in_the_next_row():
    run = Run(Path(), 0.0, 0)
    points = [
        Point("loss", 1.0, 1000, 1),
        Point("hp/lr", 0.5, 2000, 1),
        Point("loss", 0.9, 3000, 2),
    ]
    records = list(_rows(run, points[:2])) + list(_rows(run, points[2:]))
    rows = [values(record.history.item) for record in records if record.HasField("history")]
    assert [(row["_step"], row["loss"], row.get("hp/lr")) for row in rows] == [
        (1, 1.0, None),
        (2, 0.9, 0.5),
    ]


def test_a_run_that_wandb_writes_itself_reads_the_same(home: Home, tmp_path: Path):
    row, journal = begun(home)
    add(journal, row, report(row, 1, 1, loss=math.nan), report(row, 1, 2, loss=0.5))
    send_all(outbox(home, row, journal))
    ours = runs_of(home, row)["t0001"]
    script = """
import wandb
run = wandb.init(project="begun", group="by-hand", job_type="trial", name="t0001",
                 mode="offline", config={"lr": 0.001, "seed": 2**70})
run.log({"loss": float("nan")}, step=1)
run.log({"loss": 0.5}, step=2)
run.finish()
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=120)
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    theirs = read(path)
    for name in ("project", "run_group", "job_type", "display_name"):
        assert getattr(ours.run, name) == getattr(theirs.run, name)
    config = {name: value for name, value in theirs.config.items() if name != "_wandb"}
    assert ours.config == config
    assert [sorted(each) for each in ours.rows] == [sorted(each) for each in theirs.rows]
    losses = [[repr(float(each["loss"])) for each in run.rows] for run in (ours, theirs)]
    assert losses[0] == losses[1]
    assert ours.summary["loss"] == theirs.summary["loss"]


def test_a_writer_leaves_no_process_no_thread_and_listens_nowhere(simulated, home: Home):
    row, journal = simulated(**ALONE)
    process = psutil.Process()
    before = process.children(), process.net_connections(), threading.enumerate()
    send_all(outbox(home, row, journal))
    assert (process.children(), process.net_connections(), threading.enumerate()) == before


def test_rm_knows_the_folder(stored, home: Home):
    folder = home.folder(stored[0].id, None)
    assert folder / "wandb" in list(find_ours(folder))


@pytest.mark.full
def test_a_recorder_that_is_killed_again_and_again_loses_no_step_and_repeats_none(home: Home):
    row, journal = begun(home)
    spec = specs.restore(row.spec)
    for step in (1, 2, 3):
        with Recorder(home, row.id, spec, journal) as recorder:
            add(journal, row, report(row, 1, step, loss=1 / step), report(row, 2, step, loss=step))
            wait_until(lambda: journal.cursor(row.id, "wandb") > 0)
            killed = recorder._processes["wandb"]
            process = psutil.Process(killed.pid)
            assert (process.children(), process.net_connections("tcp")) == ([], [])
            os.kill(killed.pid, signal.SIGKILL)
            wait_until(lambda ended=killed: ended._process.poll() is not None)
            recorder.turn(SweepState(spec), [])
    assert recorder.behind == 0
    assert (home.folder(row.id, None) / "logs" / "recorder.log").read_text() == ""
    runs = runs_of(home, row)
    for name, losses in {"t0001": [1.0, 1 / 2, 1 / 3], "t0002": [1.0, 2.0, 3.0]}.items():
        rows = [(each["_step"], each["loss"]) for each in runs[name].rows]
        assert rows == list(zip((1, 2, 3), losses, strict=True))


@pytest.mark.full
def test_the_page_runs(tmp_path: Path):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    script = tmp_path / "page.py"
    script.write_text("".join(blocks))
    environment = {**os.environ, "HPOSVC_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if re.match(r"t\d{4} \[", line)]
    assert sorted(line[0] for line in lines) == [f"t{n:04d}" for n in range(1, 7)]
    assert all(len(line) > 1 for line in lines)
