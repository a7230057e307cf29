"""What people can do with sweeps: one function per verb of the command line.

Errors: SpecError (bad usage, exit code 2), NotFound (4), OutOfReach and StoreError (5), Busy and
Fenced (another driver has the sweep, 2), Interrupted (130).
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hposvc import source, summary
from hposvc import spec as specs
from hposvc.driving import Driver
from hposvc.home import Home, NotFound, find
from hposvc.journal import Journal, SweepRow
from hposvc.lease import DriverState, driver_state
from hposvc.reading.problems import fail
from hposvc.recall import resolve
from hposvc.runner import Watcher
from hposvc.spec import SweepSpec
from hposvc.spec.kinds import check_name
from hposvc.state import SweepState
from hposvc.store import StoreError
from hposvc.tracking.recorder import Recorder
from trainables.slots.assignment import log_file

LISTED = 1  # grows when `ls` shows something else of the same events


@dataclass(frozen=True)
class Sweeps:
    """An open home."""

    home: Home
    journal: Journal

    @classmethod
    def open(cls, path: Path | None = None) -> "Sweeps":
        """The home at `path`, or where HPOSVC_HOME says.

        Raises:
            StoreError: the home, or its journal, can't be opened.
        """
        home = Home.of(path)
        try:
            return cls(home, home.journal())
        except OSError as error:
            message = f"home {home.path}: {error.strerror}; set HPOSVC_HOME to a folder of yours"
            raise StoreError(message) from error


@dataclass(frozen=True)
class Record:
    """A sweep, and all that its journal says of it."""

    row: SweepRow
    state: SweepState
    runs: Mapping[str, str]  # MLflow's run of each trial
    driver: DriverState
    behind: int  # events that MLflow was not told of
    registered: str = ""  # what became of the best trial in MLflow's registry; empty: nothing yet

    def status(self) -> dict[str, Any]:
        """The sweep in a few figures."""
        found = summary.status(self.row.id, self.state, self.runs, self.driver)
        return {**found, "registered": self.registered or None}

    def trials(self) -> list[dict[str, Any]]:
        """All trials, in the order proposed."""
        return summary.trials(self.state, self.runs)

    def best(self) -> dict[str, Any] | list[dict[str, Any]] | None:
        """The best trial; None while no trial has a value. With several metrics: the front."""
        return summary.best(self.row.id, self.state, self.runs)

    def front(self) -> list[dict[str, Any]]:
        """The best trials, the best of the first metric first; empty while none has a value."""
        return summary.front(self.row.id, self.state, self.runs)

    def failures(self) -> dict[str, str]:
        """The last message of each trial that failed."""
        return {trial.id: trial.message for trial in summary.failures(self.state)}


@dataclass(frozen=True)
class Log:
    """What one rank wrote during one order."""

    trial: str
    order: int
    rank: int
    path: Path


def validate(source: Path | Mapping[str, object], set: Mapping[str, object]) -> SweepSpec:
    """Check all that can be known without running."""
    return specs.check(source, set)


def create(sweeps: Sweeps, spec: SweepSpec, identifier: str | None = None) -> SweepRow:
    """Record a new sweep; nothing runs yet.

    Raises:
        SpecError: the id is taken, or can't be the name of a folder; a sweep to learn from has
            other metrics.
        NotFound: there is no sweep to learn from.
    """
    if identifier is not None:
        try:
            check_name(identifier)
        except ValueError as error:
            raise fail(str(error), "--id") from error
    name = identifier or f"{spec.name}-{secrets.token_hex(3)}"
    spec = resolve(sweeps.journal, spec)
    frozen, code = specs.dump(spec), source.describe(spec)
    row = SweepRow(name, spec.name, spec.project, time.time(), frozen, code)
    if not sweeps.journal.create(row):
        message = f"there is a sweep {name} already; `hposvc resume {name}` goes on with it"
        raise fail(message, "--id")
    return row


def drive(
    sweeps: Sweeps, row: SweepRow, watchers: Sequence[Watcher] = (), address: str | None = None
) -> Record:
    """Run a recorded sweep to its end, or go on with one."""
    state = Driver(sweeps.home, sweeps.journal, row, address, watchers).drive()
    return _record(sweeps, row, state)


def resume(
    sweeps: Sweeps,
    sweep: str,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    accept_code: bool = False,
) -> Record:
    """Go on with a sweep from its journal; one that has ended is reconciled with MLflow.

    Raises:
        SpecError: the trainable's source changed since the sweep began, and it is not accepted.
    """
    row = find(sweeps.journal, sweep)
    if not accept_code and not _fold(sweeps, row).finished:
        source.check_unchanged(row)
    return drive(sweeps, row, watchers, address)


def ls(
    sweeps: Sweeps, project: str | None = None, tag: str | None = None, since: float | None = None
) -> list[dict[str, Any]]:
    """All sweeps, newest first; `tag` is `name` or `name=value`, `since` seconds of the epoch."""
    rows = [
        row
        for row in sweeps.journal.sweeps()
        if (project is None or row.project == project)
        and (since is None or row.created >= since)
        and (tag is None or _tagged(row, tag))
    ]
    return [_listed(sweeps, row) for row in rows]


def load(sweeps: Sweeps, sweep: str) -> Record:
    """A sweep as its journal has it.

    Raises:
        NotFound: no such sweep.
    """
    row = find(sweeps.journal, sweep)
    return _record(sweeps, row, _fold(sweeps, row))


def status(sweeps: Sweeps, sweep: str) -> dict[str, Any]:
    """A sweep in a few figures."""
    return load(sweeps, sweep).status()


def trials(sweeps: Sweeps, sweep: str) -> list[dict[str, Any]]:
    """All trials of a sweep, in the order proposed."""
    return load(sweeps, sweep).trials()


def best(sweeps: Sweeps, sweep: str) -> dict[str, Any] | list[dict[str, Any]] | None:
    """The best trial; None while no trial has a value. With several metrics: the front."""
    return load(sweeps, sweep).best()


def logs(
    sweeps: Sweeps, sweep: str, trial: str | None = None, rank: int | None = None
) -> list[Log]:
    """What the ranks of a trial wrote, oldest order first.

    Args:
        trial: None: all trials that failed, or if none did, the last one.
        rank: None: all of them.

    Raises:
        NotFound: no such trial.
    """
    record = load(sweeps, sweep)
    if trial is not None:
        check_trial(record, trial)
        names = [trial]
    else:
        names = list(record.failures()) or list(record.state.trials)[-1:]
    folder = sweeps.home.folder(record.row.id, record.state.spec.storage)
    found = [log for name in names for log in _logs(folder, name)]
    return [log for log in found if rank is None or log.rank == rank]


def check_trial(record: Record, trial: str) -> None:
    """See that a sweep has a trial.

    Raises:
        NotFound: it has none of that name.
    """
    if trial not in record.state.trials:
        sweep = record.row.id
        raise NotFound(f"{sweep} has no trial {trial}; `hposvc trials {sweep}` lists them")


def _fold(sweeps: Sweeps, row: SweepRow) -> SweepState:
    """All that the journal says of a sweep."""
    state = SweepState(specs.restore(row.spec))
    for _, event in sweeps.journal.read(row.id):
        state.apply(event)
    return state


def _record(sweeps: Sweeps, row: SweepRow, state: SweepState) -> Record:
    driver = driver_state(sweeps.journal.store, row.id)
    recorder = Recorder(sweeps.home, row.id, state.spec, sweeps.journal)
    runs, registered = sweeps.journal.runs(row.id), sweeps.journal.registered(row.id)
    return Record(row, state, runs, driver, recorder.behind, registered)


def _logs(folder: Path, trial: str) -> list[Log]:
    files = log_file(folder, trial, 0, 0).parent.glob("*-*.log")
    numbers = {file: file.stem.partition("-") for file in files}
    logs = [Log(trial, int(order), int(rank), file) for file, (order, _, rank) in numbers.items()]
    return sorted(logs, key=lambda log: (log.order, log.rank))


def _tagged(row: SweepRow, tag: str) -> bool:
    name, given, value = tag.partition("=")
    tags = row.spec.get("tags", {})
    return name in tags and (not given or str(tags[name]) == value)


def _listed(sweeps: Sweeps, row: SweepRow) -> dict[str, Any]:
    """A sweep as `ls` has it; of one that has ended it is worked out once."""
    of = {"version": LISTED, "seq": sweeps.journal.last(row.id)}  # which events it was made from
    kept = sweeps.journal.listed(row.id)
    if kept.get("of") == of:
        return dict(kept["row"])
    state = _fold(sweeps, row)
    found = _summed_up(row, state)
    if state.finished:
        with suppress(StoreError):  # it is worked out again next time
            sweeps.journal.record_listed(row.id, {"of": of, "row": found})
    return found


def _summed_up(row: SweepRow, state: SweepState) -> dict[str, Any]:
    value = None if state.best is None else state.trials[state.best].value
    return {
        "sweep": row.id,
        "name": row.name,
        "project": row.project,
        "state": state.state,
        "created": row.created,
        "trials": len(state.trials),
        "best_value": value,
        "front": len(state.front) if state.spec.several else None,
    }
