"""Runs in files of W&B, as W&B's own reader reads them: each record once."""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from outboxes import add, begun, report, send_all

from hposvc import spec as specs
from hposvc.events import (
    Closed,
    Decided,
    Ended,
    Failed,
    Finished,
    Proposed,
    Reported,
)
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.sink import SinkSetting

pytest.importorskip("wandb")
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

from hposvc.tracking.wandb import WandB

ALONE = {"tracking": {"send_to": ["wandb"]}}
TAGGED = {"seed": 2**70, "tags": {"team": "ä", "long": "x" * 70}, **ALONE}


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    spec = specs.restore(row.spec)
    return Outbox(row, spec, journal, lambda: WandB(SinkSetting(home, journal, row, spec)))


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


def test_a_file_of_several_blocks_is_cut_wherever_it_is_torn(home: Home):
    row, journal = begun(home, **TAGGED)
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


def test_trials_that_failed_stopped_or_never_reported_are_told_apart(home: Home):
    row, journal = begun(home, **TAGGED)
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


@pytest.mark.full
def test_a_run_that_wandb_writes_itself_reads_the_same(home: Home, tmp_path: Path):
    row, journal = begun(home, **TAGGED)
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
