"""Runs as lines of JSON: each event's lines once and in order, whenever the writer dies."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pages
import pandas as pd
import pytest
from outboxes import mlflow_outbox, outbox_to, params_of, send_all
from waiting import until

from hposvc import spec as specs
from hposvc.events import Reported
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.json_lines import JsonLines
from hposvc.tracking.mlflow_client import Tracker
from hposvc.tracking.outbox import Outbox, follow
from hposvc.tracking.recorder_process import Recorder

BOTH = {"tracking": {"send_to": ["mlflow", "json_lines"]}}
ALONE = {"tracking": {"send_to": ["json_lines"]}}


def outbox(home: Home, row: SweepRow, journal: Journal) -> Outbox:
    return outbox_to(JsonLines, home, row, journal)


def file_of(home: Home, row: SweepRow) -> Path:
    return home.folder(row.id, None) / "tracking.jsonl"


def lines_of(path: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def states_of(home: Home, row: SweepRow) -> dict[str | None, dict[str, Any]]:
    """Return the last state of the sweep (None) and of each trial."""
    return {line["trial"]: line for line in lines_of(file_of(home, row), "state")}


@pytest.fixture
def written(simulated, home: Home) -> tuple[SweepRow, Journal, bytes]:
    """Return a simulated sweep, and the file of a writer that nobody disturbed."""
    row, journal = simulated(**ALONE)
    send_all(outbox(home, row, journal))
    whole = file_of(home, row).read_bytes()
    assert journal.cursor(row.id, "json_lines") == journal.last(row.id)
    return row, journal, whole


def test_every_report_of_every_trial_is_a_line_under_the_name_that_it_was_given(written, home):
    row, journal, _ = written
    expected = [
        (event.trial, event.step, round(1000 * (row.created + event.time)), event.metrics)
        for _, event in journal.read(row.id)
        if isinstance(event, Reported)
    ]
    lines = [line for line in lines_of(file_of(home, row), "metrics") if line["trial"]]
    assert len(lines) == len(expected)
    for line, (trial, step, time_ms, metrics) in zip(lines, expected, strict=True):
        assert (line["trial"], line["step"], line["time_ms"]) == (trial, step, time_ms)
        assert line["metrics"]["acc@1"] == metrics["acc@1"]
        loss = metrics["loss"]
        assert line["metrics"]["loss"] == (loss if math.isfinite(loss) else None)
    assert any(line["metrics"]["loss"] is None for line in lines)


def test_every_trial_begins_with_its_params_as_they_are_and_ends(written, home):
    row, journal, _ = written
    begun = {line["trial"]: line["params"] for line in lines_of(file_of(home, row), "begin")}
    assert begun == {None: {}, **params_of(row, journal)}
    states = states_of(home, row)
    assert {trial: last["status"] for trial, last in states.items()} == dict.fromkeys(
        begun, "FINISHED"
    )
    assert all(last["end_ms"] >= round(1000 * row.created) for last in states.values())
    best = [trial for trial, last in states.items() if last["tags"].get("hposvc.best") == "true"]
    assert len(best) == 1


def test_event_and_part_name_each_line_once_and_in_order(written):
    *_, whole = written
    names = [(line["event"], line["part"]) for line in map(json.loads, whole.splitlines())]
    assert names == sorted(set(names))


@pytest.mark.full
def test_a_tracking_server_out_of_reach_does_not_hold_the_lines_up(
    simulated, home: Home, monkeypatch
):
    """MLflow's recorder keeps trying meanwhile; nothing is told it, and all is in the file."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    away = {**BOTH["tracking"], "uri": "http://127.0.0.1:9"}
    row, journal = simulated(tracking=away)
    recorder = Recorder(home, row.id, specs.restore(row.spec), journal).__enter__()
    until(lambda: journal.cursor(row.id, "json_lines") == journal.last(row.id))
    recorder.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert recorder.behind == journal.last(row.id)
    assert recorder.waiting == ["MLflow"]
    assert {state["status"] for state in states_of(home, row).values()} == {"FINISHED"}


def test_without_mlflow_nothing_goes_there(simulated, home: Home, tracked):
    row, journal = simulated(**ALONE)
    with Recorder(home, row.id, specs.restore(row.spec), journal) as recorder:
        assert recorder.environment("t0001") == {}
    assert (recorder.behind, tracked.all()) == (0, [])
    assert {state["status"] for state in states_of(home, row).values()} == {"FINISHED"}


def test_a_broken_sink_moves_its_own_cursor_only(simulated, home: Home, tracked):
    row, journal = simulated(**BOTH)
    file_of(home, row).mkdir(parents=True)  # where the file should be
    reading, writing = os.pipe()
    os.close(writing)
    assert not follow(outbox(home, row, journal), reading, give_up_s=0.0)
    tracker = Tracker(home, home.tracking_uri, row.project, row.id)
    assert follow(mlflow_outbox(home, row, journal, tracker), reading)
    os.close(reading)
    assert journal.cursor(row.id, "json_lines") == 0
    assert journal.cursor(row.id, "mlflow") == journal.last(row.id)


def test_pandas_reads_the_curves_as_the_page_says(written, home: Home, monkeypatch):
    row, journal, _ = written
    (program,) = pages.blocks("how-to/other-trackers.md")
    monkeypatch.chdir(file_of(home, row).parent)
    names: dict[str, pd.DataFrame] = {}
    exec(compile(program, "docs/how-to/other-trackers.md", "exec"), names)
    events = [event for _, event in journal.read(row.id) if isinstance(event, Reported)]
    finite = [event for event in events if math.isfinite(event.metrics["loss"])]
    assert names["curves"].notna().sum().sum() == len(finite)
    assert all(
        names["curves"].loc[event.step, event.trial] == pytest.approx(event.metrics["loss"])
        for event in finite
    )
    assert list(names["params"].columns) == ["lr", "wide"]
    assert len(names["params"]) == 12
    assert set(names["states"].status) == {"FINISHED"}
