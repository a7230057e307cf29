"""Functions that create, drive and read sweeps; the command line calls one per verb.

Errors: SpecError (bad usage, exit code 2), NotFound (4), OutOfReach and StoreError (5), Busy and
Fenced (another driver has the sweep, 2), Interrupted (130).
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hposvc import spec as specs
from hposvc.driver.driver import Driver
from hposvc.driver.loop import Watcher
from hposvc.driver.warm_start import resolve
from hposvc.errors import NotFound, SpecError, StoreError, fail
from hposvc.events import DriverState, Event, UnknownEvent, to_json
from hposvc.journal.compression import Damaged
from hposvc.journal.database import retry_until_answered
from hposvc.journal.home import SIGNATURE, Home, as_store_errors, claim, clear, find
from hposvc.journal.journal import Journal, SweepRow
from hposvc.journal.lease import driver_state
from hposvc.spec import SweepSpec, fingerprint
from hposvc.spec.paths import store_url
from hposvc.spec.types import check_id
from hposvc.state import snapshot, summary
from hposvc.state.sweep import SweepState
from hposvc.tracking.recorder_process import Recorder
from trainables.runtime.assignment import log_file
from trainables.storage import stores
from trainables.storage.stores import StoreFailed

UNREADABLE = "UNREADABLE"  # in place of a state: this version can't read the sweep
LISTED = 1  # version of the cached `ls` rows; raise it when `ls` shows other facts


# Opened with the id of a sweep that is about to be driven: gives the watchers of its turns.
Watching = Callable[[str], AbstractContextManager[Sequence[Watcher]]]


def unwatched(sweep: str) -> AbstractContextManager[Sequence[Watcher]]:
    """Drive a sweep without watchers."""
    return nullcontext(())


@dataclass(frozen=True)
class Sweeps:
    """An open home, with its journal."""

    home: Home
    journal: Journal

    @classmethod
    def open(cls, path: Path | None = None) -> "Sweeps":
        """Open the home at `path`; None: the folder in HPOSVC_HOME, or ~/.hposvc.

        Raises:
            StoreError: the home, or its journal, can't be opened.
        """
        home = Home.of(path)
        return cls(home, home.journal())


@dataclass(frozen=True)
class Record:
    """A sweep as its journal describes it at one moment."""

    row: SweepRow
    state: SweepState
    runs: Mapping[str, str]  # MLflow's run of each trial
    driver: DriverState
    behind: int  # events not yet sent to every sink
    registered: str = ""  # the registered model version, in words; empty: none yet

    @property
    def phase(self) -> str:
        """The sweep's state for display: INTERRUPTED if it is RUNNING without a driver."""
        return summary.phase(self.state, self.driver)

    def status(self) -> dict[str, Any]:
        """Return the sweep's status in a few figures."""
        figures = summary.status(self.row.id, self.state, self.runs, self.driver)
        return {**figures, "registered": self.registered or None}

    def trials(self) -> list[dict[str, Any]]:
        """Return all trials, in the order in which they were proposed."""
        return summary.trials(self.state, self.runs, self.driver)

    def best(self) -> dict[str, Any] | list[dict[str, Any]] | None:
        """Return the best trial, or the front if there are several metrics.

        None: no trial has a value yet.
        """
        return summary.best(self.row.id, self.state, self.runs)

    def front(self) -> list[dict[str, Any]]:
        """Return the best trials, sorted by the first metric; empty while no trial has a value."""
        return summary.front(self.row.id, self.state, self.runs)

    def warning(self) -> str:
        """Say that there is no best trial, or that it could be better; empty: nothing to say."""
        if self.state.front:
            return summary.untrained(self.row.id, self.state)
        within = " within the limits" if self.state.spec.limits else ""
        return f"no trial of {self.row.id} has a value{within} yet"

    def failures(self) -> dict[str, str]:
        """Return the last error message of each failed trial, by trial id."""
        return {trial.id: trial.message for trial in summary.failures(self.state)}


@dataclass
class Watched:
    """A sweep that is read repeatedly; each look applies only the new events of the journal."""

    sweeps: Sweeps
    row: SweepRow
    state: SweepState  # as of the last look
    seq: int = 0  # number of the last event applied to `state`
    snapshot_seq: int = 0  # of the last event in the snapshot of a long journal; 0: there is none

    def look(self) -> SweepState:
        """Return the state as the journal has it now; the next look changes this object."""
        event = None
        for seq, event in self.sweeps.journal.read(self.row.id, self.seq):
            self.state.apply(event)
            self.seq = seq
        if event is not None and snapshot.is_due(self.snapshot_seq, self.seq):
            self.snapshot_seq = self.seq
            latest = snapshot.Snapshot(self.seq, to_json(event), self.state)
            snapshot.save(self.sweeps.home.snapshot(self.row.id), _identity_of(self.row), latest)
        return self.state

    def record(self) -> Record:
        """Return the sweep as the journal has it now; the next look changes the record's state."""
        store = self.sweeps.journal.store
        driver = driver_state(store, self.row.id)  # first: a driver ending now writes its events
        return _record(self.sweeps, self.row, self.look(), driver)


@dataclass(frozen=True)
class Log:
    """The log file that one rank wrote during one order."""

    trial: str
    order: int
    rank: int
    path: Path


class OpenSweep(Protocol):
    """A recorded sweep to be read, wherever its journal is."""

    def record(self) -> Record:
        """Read the sweep from its journal."""

    def history(self) -> tuple[SweepRow, list[Event]]:
        """Return the sweep's row, and all its events."""

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        """Return the ranks' logs as {trial, order, rank, path, text}; see `logs` of this module."""


@dataclass(frozen=True)
class LocalSweep:
    """A sweep whose journal is in this home."""

    sweeps: Sweeps
    name: str  # its id, the beginning of the id, or `last`

    def record(self) -> Record:
        return load(self.sweeps, self.name)

    def history(self) -> tuple[SweepRow, list[Event]]:
        row = load(self.sweeps, self.name).row
        return row, [event for _, event in self.sweeps.journal.read(row.id)]

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        return [
            {**asdict(log), "path": str(log.path), "text": log.path.read_text(errors="replace")}
            for log in logs(self.sweeps, self.record(), trial, rank)
        ]


def validate(source: Path | Mapping[str, object], set: Mapping[str, object]) -> SweepSpec:
    """Check a spec as far as possible without running it, and return it resolved."""
    return specs.check(source, set)


def create(sweeps: Sweeps, spec: SweepSpec, identifier: str | None = None) -> SweepRow:
    """Record a new sweep in the journal, without running it.

    Raises:
        SpecError: the id is taken, or can't be the name of a folder; the sweep's folder belongs to
            another journal or can't be written; a `warm_start` sweep has other metrics.
        NotFound: a `warm_start` sweep does not exist.
        StoreError: the store of the sweep's checkpoints can't be reached.
    """
    if identifier is not None:
        try:
            check_id(identifier)
        except ValueError as error:
            raise fail(str(error), "--id") from error
    name = identifier or f"{spec.name}-{secrets.token_hex(3)}"
    message = (
        f"there is a sweep {name} already; `hposvc resume {name}` goes on with it, with its own"
    )
    id_taken = fail(f"{message} settings; for new ones: hposvc fork {name} --set ...", "--id")
    if sweeps.journal.find(name) is not None:
        raise id_taken
    spec = resolve(sweeps.journal, spec)
    frozen, code = specs.dump(spec), fingerprint.describe(spec)
    row = SweepRow(name, spec.name, spec.project, time.time(), frozen, code, spec)
    _claim(sweeps, name, spec)
    if not sweeps.journal.create(row):  # another process created the id a moment ago
        raise id_taken
    return row


def _claim(sweeps: Sweeps, sweep: str, spec: SweepSpec) -> None:
    """Claim a new sweep's folder, and its prefix in a store, so that no other sweep uses them."""
    journal = f"{sweeps.journal.store}"
    folder, url = sweeps.home.folder(sweep, spec.storage), store_url(sweep, spec.storage)
    claim(folder, journal)
    if url is None or spec.engine.traits.simulated:
        return
    try:
        conflict = stores.claim(url, SIGNATURE, journal)
    except StoreFailed as error:
        clear(folder)
        raise StoreError(f"{error}") from error
    if conflict:
        clear(folder)
        raise fail(f"{url}: {conflict}; give another --id, or another storage", "storage")


def drive(
    sweeps: Sweeps, row: SweepRow, watchers: Sequence[Watcher] = (), address: str | None = None
) -> Record:
    """Run a recorded sweep to its end, from the beginning or from where its last driver stopped.

    Raises:
        StoreError: a file of the home, or of the sweep's folder, can't be read or written.
    """
    with as_store_errors(sweeps.home.path, sweeps.home.folder(row.id, row.spec.get("storage"))):
        state = Driver(sweeps.home, sweeps.journal, row, address, watchers).drive()
    ask_driver = partial(driver_state, sweeps.journal.store, row.id)
    return retry_until_answered(lambda: _record(sweeps, row, state, ask_driver()), row.id)


def resume(
    sweeps: Sweeps,
    sweep: str,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    accept_code: bool = False,
) -> Record:
    """Continue a sweep from its journal; for an ended sweep, only bring MLflow up to date.

    Args:
        accept_code: continue although the trainable's source has changed.

    Raises:
        SpecError: the trainable's source changed since the sweep began.
    """
    row = find(sweeps.journal, sweep)
    if not accept_code and not _read_state(sweeps, row).finished:
        fingerprint.check_unchanged(row.id, row.spec, row.code)
    return drive(sweeps, row, watchers, address)


def ls(
    sweeps: Sweeps, project: str | None = None, tag: str | None = None, since: float | None = None
) -> list[dict[str, Any]]:
    """List all sweeps, newest first; an unreadable sweep is listed with the reason.

    Args:
        tag: `name`, or `name=value`.
        since: list only sweeps created at or after this time, in seconds of the epoch.
    """
    rows = [
        row
        for row in sweeps.journal.sweeps()
        if (project is None or row.project == project)
        and (since is None or row.created >= since)
        and (tag is None or _has_tag(row, tag))
    ]
    return [_ls_row_or_reason(sweeps, row) for row in rows]


def load(sweeps: Sweeps, sweep: str) -> Record:
    """Read a sweep from its journal.

    Raises:
        NotFound: no such sweep.
    """
    return watch(sweeps, sweep).record()


def watch(sweeps: Sweeps, sweep: str) -> Watched:
    """Return a sweep that can be read repeatedly.

    Raises:
        NotFound: no such sweep.
    """
    return _watch(sweeps, find(sweeps.journal, sweep))


def logs(
    sweeps: Sweeps, record: Record, trial: str | None = None, rank: int | None = None
) -> list[Log]:
    """Return the log files of a trial's ranks, oldest order first.

    Args:
        trial: None: all failed trials, or if none failed, the last trial.
        rank: None: all ranks.

    Raises:
        NotFound: no such trial.
    """
    if trial is not None:
        check_trial(record, trial)
        names = [trial]
    else:
        names = list(record.failures()) or list(record.state.trials)[-1:]
    folder = sweeps.home.folder(record.row.id, record.state.spec.storage)
    log_files = [log for name in names for log in _list_logs(folder, name)]
    return [log for log in log_files if rank is None or log.rank == rank]


def check_trial(record: Record, trial: str) -> None:
    """Check that a sweep has a trial of this name.

    Raises:
        NotFound: the sweep has no such trial.
    """
    if trial not in record.state.trials:
        sweep = record.row.id
        raise NotFound(f"{sweep} has no trial {trial}; `hposvc trials {sweep}` lists them")


def _read_state(sweeps: Sweeps, row: SweepRow) -> SweepState:
    """Return a sweep's state as of now."""
    return _watch(sweeps, row).look()


def _watch(sweeps: Sweeps, row: SweepRow) -> Watched:
    """Return a sweep as of its snapshot, or as of its beginning."""
    spec = specs.restore(row.spec)  # its code can be imported from here on
    cached = snapshot.load(sweeps.home.snapshot(row.id), _identity_of(row))
    if cached is not None:
        # A journal that was set back to a backup may hold another event of this number.
        for seq, event in sweeps.journal.read(row.id, cached.seq - 1):
            if seq == cached.seq and to_json(event) == cached.event:
                return Watched(sweeps, row, cached.state, seq, seq)
            break
    return Watched(sweeps, row, SweepState(spec))


def _identity_of(row: SweepRow) -> str:
    """Return what tells the sweep from another one of the same id."""
    return repr((row.id, row.created, row.spec))


def _record(sweeps: Sweeps, row: SweepRow, state: SweepState, driver: DriverState) -> Record:
    recorder = Recorder(sweeps.home, row.id, state.spec, sweeps.journal)
    runs, registered = sweeps.journal.runs(row.id), sweeps.journal.registered(row.id)
    return Record(row, state, runs, driver, recorder.behind, registered)


def _list_logs(folder: Path, trial: str) -> list[Log]:
    files = log_file(folder, trial, 0, 0).parent.glob("*-*.log")
    numbers = {file: file.stem.partition("-") for file in files}
    logs = [Log(trial, int(order), int(rank), file) for file, (order, _, rank) in numbers.items()]
    return sorted(logs, key=lambda log: (log.order, log.rank))


def _has_tag(row: SweepRow, tag: str) -> bool:
    name, equals, value = tag.partition("=")
    tags = row.spec.get("tags", {})
    return name in tags and (not equals or str(tags[name]) == value)


def _ls_row_or_reason(sweeps: Sweeps, row: SweepRow) -> dict[str, Any]:
    """Return a sweep's row of `ls`; for an unreadable sweep, with the reason under `why`.

    A sweep written by another version must not hide the others.
    """
    try:
        return {**_ls_row(sweeps, row), "why": None}
    except Exception as error:  # events of another version may break anything
        if isinstance(error, StoreError) and not isinstance(error.__cause__, Damaged):
            raise
        is_ours = isinstance(error, StoreError | SpecError | UnknownEvent)
        why = f"{error}" if is_ours else f"{type(error).__name__}: {error}"
    unread = {"state": UNREADABLE, "trials": None, "best_value": None, "front": None, "why": why}
    return {**_identity(row), **unread}


def _ls_row(sweeps: Sweeps, row: SweepRow) -> dict[str, Any]:
    """Return a sweep's row of `ls`; the journal caches the rows of ended sweeps."""
    key = {"version": LISTED, "seq": sweeps.journal.last(row.id)}  # what the cached row depends on
    cached = sweeps.journal.listed(row.id)
    if cached.get("of") == key:
        return dict(cached["row"])
    # The driver first: one that ends now writes its last events before it lets go.
    driver = driver_state(sweeps.journal.store, row.id)
    state = _read_state(sweeps, row)
    listed = _summarize(row, state, driver)
    if state.finished:
        with suppress(StoreError):  # without a cached row, the next `ls` computes it again
            sweeps.journal.record_listed(row.id, {"of": key, "row": listed})
    return listed


def _summarize(row: SweepRow, state: SweepState, driver: DriverState) -> dict[str, Any]:
    value = None if state.best is None else state.trials[state.best].value
    return {
        **_identity(row),
        "state": summary.phase(state, driver),
        "trials": len(state.trials),
        "best_value": value,
        "front": len(state.front) if state.spec.several else None,
    }


def _identity(row: SweepRow) -> dict[str, Any]:
    return {"sweep": row.id, "name": row.name, "project": row.project, "created": row.created}
