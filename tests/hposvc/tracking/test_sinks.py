"""The contract of sinks that write on this machine: each record once, whatever dies or is lost."""

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outboxes import add, begun, end, report, send_all
from sqlalchemy import delete, update
from waiting import until

from hposvc import spec as specs
from hposvc.journal.database import CURSORS, EVENTS
from hposvc.journal.home import Home, find_ours
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec import registry
from hposvc.spec.sinks import SINKS, sink_paths
from hposvc.state.sweep import SweepState
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.recorder_process import Recorder
from hposvc.tracking.sink import SinkSetting

# Where each writes in a sweep's folder; Trackio has databases of its own elsewhere.
FILES = {
    "json_lines": "tracking.jsonl",
    "tensorboard": "tensorboard/*/*",
    "wandb": "wandb/offline-run-*/run-*.wandb",
    "trackio": "trackio",
}
assert {*FILES, "mlflow", "hydra"} == SINKS.keys(), "these two write otherwise; add a new one"
KINDS = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(module) is None, reason=f"needs {module}")
    )
    for name, module in zip(FILES, ("json", "tensorboard", "wandb", "trackio"), strict=True)
]


@dataclass(frozen=True)
class Records:
    """A sweep's records in a sink, and how some of them get lost."""

    name: str
    home: Home
    row: SweepRow
    journal: Journal

    @property
    def folder(self) -> Path:
        return self.home.folder(self.row.id, None)

    def outbox(self) -> Outbox:
        spec = specs.restore(self.row.spec)
        sink = registry.resolve(SINKS[self.name].sink)
        setting = SinkSetting(self.home, self.journal, self.row, spec)
        return Outbox(self.row, spec, self.journal, lambda: sink(setting))

    def paths(self) -> list[Path]:
        return sorted(self.folder.glob(FILES[self.name]))

    def contents(self) -> dict[str, object]:
        """Return everything that the sink has of the sweep, by file or run."""
        if self.name == "wandb":
            from wandb_files import read

            return {path.name: read(path).steady() for path in self.paths()}
        if self.name != "trackio":
            return {f"{path.relative_to(self.folder)}": path.read_bytes() for path in self.paths()}
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        runs = list(trackio.Api().runs(self.row.id))
        logs = {run.id: SQLiteStorage.get_logs(self.row.id, run_id=run.id) for run in runs}
        contents = {run.name: repr((run.id, run.config, logs[run.id])) for run in runs}
        assert len(contents) == len(runs)
        return contents

    def lose(self, shares: Sequence[float | None]) -> None:
        """Keep a share of the bytes of each file, in turn; None: delete it, or the run."""
        if self.name != "trackio":
            for path, share in zip(self.paths(), cycle(shares), strict=False):
                if share is None:
                    path.unlink()
                else:
                    os.truncate(path, round(share * path.stat().st_size))
            return
        import trackio

        for run, share in zip(list(trackio.Api().runs(self.row.id)), cycle(shares), strict=False):
            assert share is not None or run.delete()

    def lose_all(self) -> None:
        if self.name != "trackio":
            for path in self.paths():
                path.unlink()
            return
        import trackio

        assert trackio.delete_project(self.row.id, force=True)


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "trackio":
        folder = tmp_path / "trackio"
        monkeypatch.setenv("TRACKIO_DIR", str(folder))  # for processes that a test starts
        monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", folder)
        monkeypatch.setattr("trackio.utils.TRACKIO_DIR", folder)
    return str(request.param)


@pytest.fixture
def records(name: str, simulated, home: Home) -> Records:
    """Return the records of a simulated sweep, from a writer that nobody disturbed."""
    row, journal = simulated(tracking={"send_to": [name]})
    written = Records(name, home, row, journal)
    process = psutil.Process()

    def held() -> list[set[object]]:
        of_process = (process.children(), process.net_connections(), threading.enumerate())
        return [{*each} for each in of_process]

    before = held()  # of which what earlier tests started may end meanwhile
    send_all(written.outbox())
    assert all(now <= then for now, then in zip(held(), before, strict=True))
    assert journal.cursor(row.id, name) == journal.last(row.id)
    return written


SHARES = st.lists(st.none() | st.just(1.0) | st.floats(0, 1), min_size=1, max_size=12)


# Drawn as a whole: an example that breaks off while it draws would leave its damage to the next.
@given(losses=st.lists(st.tuples(SHARES, st.floats(0, 1)), min_size=2, max_size=2))
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_wherever_records_and_cursor_end_none_is_lost_or_comes_twice(
    records: Records, losses: list[tuple[list[float | None], float]]
):
    """A writer dies between two bytes, before or after its cursor moved; or a disk loses some."""
    complete, last = records.contents(), records.journal.last(records.row.id)
    for shares, cursor in losses:
        records.lose(shares)
        records.journal.rewind(records.row.id, records.name, round(cursor * last))
    send_all(records.outbox())
    assert records.contents() == complete
    assert records.journal.cursor(records.row.id, records.name) == last


def test_records_of_events_that_the_journal_lost_are_dropped(records: Records, tmp_path: Path):
    """A copy took the journal's place that is older than what the sink was sent."""
    whole, last = records.contents(), records.journal.last(records.row.id)
    mark = tmp_path / "sent"
    send_all(replace(records.outbox(), mark=mark))
    every = list(records.journal.read(records.row.id))
    kept = last // 2
    with records.journal.store.writing() as connection:
        connection.execute(delete(EVENTS).where(EVENTS.c.seq > kept))
        connection.execute(update(CURSORS).values(seq=kept))
    later = [replace(event, time=event.time + 1) for _, event in every[kept:]]
    records.journal.append(records.row.id, kept, later)
    send_all(replace(records.outbox(), mark=mark))
    assert records.contents() != whole
    again = records.contents()
    records.lose_all()
    send_all(records.outbox())
    assert again == records.contents(), "as if the lost events had never been"


def test_a_resume_writes_nothing_again_and_what_was_deleted_anew(records: Records):
    complete = records.contents()
    sender = records.outbox()
    sender.recheck()
    send_all(sender)
    assert records.contents() == complete
    records.lose_all()
    send_all(records.outbox())
    assert records.contents() == complete


def test_what_lies_in_the_sweeps_folder_goes_with_it(records: Records):
    ours = list(find_ours(records.folder, sink_paths()))
    assert all(any(path.is_relative_to(mine) for mine in ours) for path in records.paths())
    assert records.paths() or records.name == "trackio"


@pytest.mark.full
def test_a_recorder_that_is_killed_again_and_again_loses_no_step_and_repeats_none(
    name: str, home: Home
):
    row, journal = begun(home, tracking={"send_to": [name]})
    spec = specs.restore(row.spec)
    for step in (1, 2, 3):
        with Recorder(home, row.id, spec, journal) as recorder:
            add(journal, row, report(row, 1, step, loss=1 / step), report(row, 2, step, loss=step))
            recorder.on_events(SweepState(spec), [])
            before = journal.last(row.id) - 1
            until(lambda least=before: journal.cursor(row.id, name) >= least)
            killed = recorder._processes[name]
            process = psutil.Process(killed.pid)
            assert (process.children(), process.net_connections("tcp")) == ([], [])
            os.kill(killed.pid, signal.SIGKILL)
            until(lambda ended=killed: ended._process.poll() is not None)
            recorder.on_events(SweepState(spec), [])
    with Recorder(home, row.id, spec, journal, reports=False) as recorder:
        end(row, journal)
    assert recorder.behind == 0
    assert (home.folder(row.id, None) / "logs" / "recorder.log").read_text() == ""
    records = Records(name, home, row, journal)
    written_amid_kills = records.contents()
    records.lose_all()
    send_all(records.outbox())
    assert written_amid_kills == records.contents()
    assert len(written_amid_kills) == (1 if name == "json_lines" else 3)
