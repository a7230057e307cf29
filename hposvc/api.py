"""Functions that create, drive and read sweeps; the command line calls one per verb.

Errors: SpecError (bad usage, exit code 2), NotFound (4), OutOfReach and StoreError (5), Busy and
Fenced (another driver has the sweep, 2), Interrupted (130).
"""

import codecs
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from hposvc import spec as specs
from hposvc.backends.backend import Backend, Setting
from hposvc.driver.driver import Driver
from hposvc.driver.earlier_sweeps import with_sweeps_found
from hposvc.driver.loop import Watcher
from hposvc.driver.warm_start import resolve
from hposvc.errors import NotFound, SpecError, StoreError, fail
from hposvc.events import DriverState, Event, to_json
from hposvc.journal.database import retry_until_answered
from hposvc.journal.home import LOG, SIGNATURE, Home, as_store_errors, claim, clear, find
from hposvc.journal.journal import Journal, SweepRow
from hposvc.journal.lease import driver_state
from hposvc.journal.supervision import DriverQueue, find_queue
from hposvc.spec import SweepSpec, fingerprint
from hposvc.spec.paths import store_url
from hposvc.spec.types import check_id
from hposvc.state import snapshot, summary
from hposvc.state.doubts import nearest_to_limits
from hposvc.state.sweep import SweepState
from hposvc.tracking.recorder_process import Recorder
from trainables.runtime.assignment import log_file
from trainables.storage import stores
from trainables.storage.stores import StoreFailed

LOG_BYTES = 2**20  # of a log that are read at a time
LOOK_S = 0.5  # between two looks at a sweep whose logs are followed

# Opened with the id of a sweep that is about to be driven: gives the watchers of its turns.
Watching = Callable[[str], AbstractContextManager[Sequence[Watcher]]]


# Chooses the trials whose MLflow runs a record has: a long sweep has thousands. None: all trials.
RunsOf = Callable[[SweepState], Collection[str] | None]

# Opens a backend that carries out orders within the driver's own calls, on its own thread.
Embedded = Callable[[Setting], Backend]


def all_trials(state: SweepState) -> None:
    """Choose the runs of all trials."""


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

    def read(self, sweep: str, after: int) -> Iterable[tuple[int, Event]]:
        """Return a sweep's events after a number, each with its number."""
        return self.journal.read(sweep, after)

    def record_of(
        self, row: SweepRow, look: Callable[[], SweepState], runs_of: RunsOf = all_trials
    ) -> "Record":
        """Return a sweep as its journal has it now; `look` reads its state."""
        # First the driver: one that ends now writes its events before it lets go.
        driver = driver_state(self.journal.store, row.id)
        return _record(self, row, look(), driver, runs_of)

    def driver_of(self, row: SweepRow) -> DriverState:
        """Return whether a driver is at work on a sweep."""
        return driver_state(self.journal.store, row.id)

    def queue_of(self, row: SweepRow) -> DriverQueue | None:
        """Return what a sweep without a driver waits for; None: nothing."""
        return find_queue(self.journal.store, row.id)

    def find(self, name: str) -> SweepRow:
        """Return a sweep's row, by its id, a beginning of it, or `last`.

        Raises:
            NotFound: there is no such sweep.
        """
        return find(self.journal, name)

    def watch(self, name: str) -> "Watched":
        """Return a sweep that can be read repeatedly; see `find`."""
        return watch_row(self, self.find(name))

    def log_parts(
        self,
        row: SweepRow,
        trial: str,
        rank: int | None,
        most: int,
        offset: int | None = None,
        order: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the logs of a trial's ranks, oldest order first; see `Log.part`."""
        return [
            log.part(most, offset)
            for log in _list_logs(self.home.folder(row.id, row.spec.get("storage")), trial)
            if rank in (None, log.rank) and order in (None, log.order)
        ]


@dataclass(frozen=True)
class Record:
    """A sweep as its journal describes it at one moment."""

    row: SweepRow
    state: SweepState
    runs: Mapping[str, str]  # MLflow's run of each trial
    driver: DriverState
    behind: int  # events not yet sent to every sink
    registered: str = ""  # the registered model version, in words; empty: none yet
    tracking_uri: str = ""  # where a server has MLflow; empty: where the home or the spec says
    # Notifications that could not be delivered so far, as JSON data.
    undelivered: Sequence[Mapping[str, Any]] = ()
    queue: DriverQueue | None = None  # on a server, while it waits for a driver

    @property
    def phase(self) -> str:
        """The sweep's state for display: INTERRUPTED if it is RUNNING without a driver."""
        return summary.phase(self.state, self.driver)

    def status(self) -> dict[str, Any]:
        """Return the sweep's status in a few figures."""
        figures = summary.status(self.row.id, self.state, self.runs, self.driver)
        undelivered = list(self.undelivered)
        if self.queue is not None and not self.state.driven:
            figures["queued_s"] = round(max(0.0, time.time() - self.queue.since), 3)
        return {
            **figures,
            "driver_queue": None if self.queue is None else self.queue.data(),
            "registered": self.registered or None,
            "undelivered": undelivered,
        }

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
        nearest = nearest_to_limits(self.state)
        return f"no trial of {self.row.id} has a value{within} yet{nearest and f'; {nearest}'}"

    def failures(self) -> dict[str, str]:
        """Return the last error message of each failed trial, by trial id."""
        return {trial.id: trial.message for trial in summary.failures(self.state)}


class SweepSource(Protocol):
    """Where sweeps are read from: this home's journal, or a server."""

    @property
    def home(self) -> Home:
        """The home of this machine, which caches what long journals come to."""

    def read(self, sweep: str, after: int) -> Iterable[tuple[int, Event]]:
        """Return a sweep's events after a number, each with its number."""

    def record_of(self, row: SweepRow, look: Callable[[], SweepState]) -> Record:
        """Return a sweep as its journal has it now; `look` reads its state."""

    def driver_of(self, row: SweepRow) -> DriverState:
        """Return whether a driver is at work on a sweep."""

    def queue_of(self, row: SweepRow) -> DriverQueue | None:
        """Return what a sweep without a driver waits for; None: nothing."""

    def find(self, name: str) -> SweepRow:
        """Return a sweep's row, by its id, a beginning of it, or `last`."""

    def watch(self, name: str) -> "Watched":
        """Return a sweep that can be read repeatedly; see `find`."""

    def log_parts(
        self,
        row: SweepRow,
        trial: str,
        rank: int | None,
        most: int,
        offset: int | None = None,
        order: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the logs of a trial's ranks, oldest order first; see `Log.part`."""


def ignore(event: Event) -> None:
    """Do nothing with an event."""


@dataclass
class Watched:
    """A sweep that is read repeatedly; each look applies only the new events of the journal."""

    source: SweepSource
    row: SweepRow
    state: SweepState  # as of the last look
    seq: int = 0  # number of the last event applied to `state`
    snapshot_seq: int = 0  # of the last event in the snapshot of a long journal; 0: there is none

    def look(self, tell: Callable[[Event], None] = ignore) -> SweepState:
        """Return the state as the journal has it now; the next look changes this object.

        Args:
            tell: called with each new event, after it was applied.
        """
        event = self.apply(self.source.read(self.row.id, self.seq), tell)
        if event is not None and snapshot.is_due(self.snapshot_seq, self.seq):
            self.snapshot_seq = self.seq
            latest = snapshot.Snapshot(self.seq, to_json(event), self.state)
            snapshot.save(self.source.home.snapshot(self.row.id), _identity_of(self.row), latest)
        return self.state

    def apply(
        self, numbered: Iterable[tuple[int, Event]], tell: Callable[[Event], None] = ignore
    ) -> Event | None:
        """Apply events read after the last one, and return the last of them; None: there are none.

        Args:
            tell: called with each event, after it was applied.
        """
        event = None
        for seq, event in numbered:
            self.state.apply(event)
            self.seq = seq
            tell(event)
        return event

    def record(self) -> Record:
        """Return the sweep as the journal has it now; the next look changes the record's state."""
        return self.source.record_of(self.row, self.look)


@dataclass(frozen=True)
class Log:
    """The log file that one rank wrote during one order."""

    trial: str
    order: int
    rank: int
    path: Path

    def part(self, most: int, offset: int | None = None) -> dict[str, Any]:
        """Return the log for JSON, with a part of its text, and where that begins and ends.

        Args:
            most: at most so many bytes.
            offset: of the first byte, and only whole characters; None: the last bytes.
        """
        with self._opened() as file:
            size = os.fstat(file.fileno()).st_size  # less than before, if a long log was shortened
            begin = max(0, size - most) if offset is None else min(size, offset)
            file.seek(begin)
            content = file.read(most)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(content, final=offset is None)
        end = begin + len(content) - len(decoder.getstate()[0])
        return {**asdict(self), "path": str(self.path), "text": text, "offset": begin, "next": end}

    def _opened(self) -> IO[bytes]:
        """Open the file; a link or a pipe that took its place is neither followed nor awaited."""

        def opener(name: str, flags: int) -> int:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

        return open(self.path, "rb", opener=opener)


@dataclass(frozen=True)
class OpenSweep:
    """A recorded sweep to be read, wherever its journal is."""

    source: SweepSource
    name: str  # its id, the beginning of the id, or `last`

    def watch(self) -> Watched:
        """Return the sweep so that it can be read repeatedly."""
        return self.source.watch(self.name)

    def record(self) -> Record:
        """Read the sweep from its journal."""
        return self.watch().record()

    def history(self) -> tuple[SweepRow, list[Event]]:
        """Return the sweep's row, and all its events."""
        row = self.source.find(self.name)
        return row, [event for _, event in self.source.read(row.id, 0)]

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        """Return the ranks' logs as {trial, order, rank, path, text}; see `trials_logged`.

        Args:
            rank: None: all ranks.
        """
        record = self.record()
        return [
            {**{key: log[key] for key in ("trial", "order", "rank", "path")}, "text": text}
            for name in trials_logged(record, trial)
            for log in self.source.log_parts(record.row, name, rank, 0)
            for text in ("".join(part for part, _ in self._read(record.row, log, 0)),)
        ]

    def follow_logs(self, trial: str | None, rank: int | None) -> Iterator[str]:
        """Yield the new text of a trial's logs as the ranks write it, until the trial has ended."""
        read: dict[str, int] = {}
        shown = ""
        for record in looks(self.watch(), trial):
            for name in trials_logged(record, trial):
                for log in self.source.log_parts(record.row, name, rank, 0):
                    path = log["path"]
                    begin = min(log["next"], read.get(path, 0))  # less: a long log was shortened
                    read[path] = begin
                    for text, read[path] in self._read(record.row, log, begin):
                        if path != shown:
                            yield f"==> {name}, order {log['order']}, rank {log['rank']} <==\n"
                            shown = path
                        yield text

    def _read(
        self, row: SweepRow, log: Mapping[str, Any], offset: int
    ) -> Iterator[tuple[str, int]]:
        """Yield the text of a log from a byte on, each part with the place of its end."""
        while offset < log["next"]:
            numbers = (log["rank"], LOG_BYTES, offset, log["order"])
            parts = self.source.log_parts(row, log["trial"], *numbers)
            if not parts or parts[0]["next"] == offset:  # deleted; or half a character
                return
            offset = parts[0]["next"]
            yield parts[0]["text"], offset


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
            raise fail(error, "--id") from error
    name = identifier or f"{spec.name}-{secrets.token_hex(3)}"
    id_taken = fail(
        f"there is a sweep {name} already",
        "--id",
        fix=f"`hposvc resume {name}` goes on with it, with its own settings, as run "
        f"does with --resume; for new ones: hposvc fork {name} --set ...",
    )
    if sweeps.journal.find(name) is not None:
        raise id_taken
    row = prepare(sweeps, spec, name, fingerprint.describe(spec))
    try:
        claim_store(sweeps, row)
    except (SpecError, StoreError):
        clear(sweeps.home.folder(name, spec.storage))
        raise
    if not sweeps.journal.create(row):  # another process created the id a moment ago
        raise id_taken
    return row


def prepare(
    sweeps: Sweeps,
    spec: SweepSpec,
    name: str,
    code: Mapping[str, Any],
    readable: Callable[[SweepRow], bool] = lambda row: True,
) -> SweepRow:
    """Return the row of a new sweep that is to be recorded, and claim its folder.

    No store is opened: a server does this for people whom it need not trust.

    Args:
        name: the sweep's id.
        code: the fingerprint of its code; empty: its driver makes it.
        readable: whether `warm_start: auto` may take a sweep.

    Raises:
        SpecError, NotFound, StoreError: see `create`.
    """
    spec = resolve(sweeps.journal, with_sweeps_found(sweeps.journal, spec, readable))
    claim(sweeps.home.folder(name, spec.storage), f"{sweeps.journal.store}")
    return SweepRow(name, spec.name, spec.project, time.time(), specs.dump(spec), code, spec)


def claim_store(sweeps: Sweeps, row: SweepRow) -> None:
    """Claim a new sweep's prefix in the store of its spec, so that no other sweep uses it.

    Nothing happens if the sweep has claimed it before, or its storage is a folder.

    Raises:
        SpecError: another journal's sweep has the prefix.
        StoreError: the store can't be reached.
    """
    spec = row.parsed if isinstance(row.parsed, SweepSpec) else specs.restore(row.spec)
    url = store_url(row.id, spec.storage)
    if url is None or spec.engine.traits.simulated:
        return
    try:
        conflict = stores.claim(url, SIGNATURE, f"{sweeps.journal.store}")
    except StoreFailed as error:
        raise StoreError(f"{error}") from error
    if conflict:
        raise fail(f"{url}: {conflict}", "storage", fix="give another --id, or another storage")


def drive(
    sweeps: Sweeps,
    row: SweepRow,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    embedded: Embedded | None = None,
) -> Record:
    """Run a recorded sweep to its end, from the beginning or from where its last driver stopped.

    Args:
        embedded: opens a backend that works within this call; None: that of the sweep's engine.

    Raises:
        StoreError: a file of the home, or of the sweep's folder, can't be read or written.
    """
    with as_store_errors(sweeps.home.path, sweeps.home.folder(row.id, row.spec.get("storage"))):
        state = Driver(sweeps.home, sweeps.journal, row, address, watchers, None, embedded).drive()
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


def load(sweeps: Sweeps, sweep: str) -> Record:
    """Read a sweep from its journal.

    Raises:
        NotFound: no such sweep.
    """
    return sweeps.watch(sweep).record()


def looks(watched: Watched, trial: str | None) -> Iterator[Record]:
    """Yield a sweep every now and then, the last time when it or the trial has ended."""
    while True:
        record = watched.record()
        over = record.driver != "alive" or record.state.finished
        if trial is not None:
            check_trial(record, trial)
            over = over or record.state.trials[trial].over
        yield record
        if over:
            return
        time.sleep(LOOK_S)


def fold(source: SweepSource, row: SweepRow, spec: SweepSpec) -> Watched:
    """Return a sweep as of its snapshot in the home, or as of its beginning.

    Args:
        spec: the spec that the row holds.
    """
    cached = snapshot.load(source.home.snapshot(row.id), _identity_of(row))
    if cached is not None:
        # A journal that was set back to a backup may hold another event of this number.
        for seq, event in source.read(row.id, cached.seq - 1):
            if seq == cached.seq and to_json(event) == cached.event:
                return Watched(source, row, cached.state, seq, seq)
            break
    return Watched(source, row, SweepState(spec))


def logs(
    sweeps: Sweeps, record: Record, trial: str | None = None, rank: int | None = None
) -> list[Log]:
    """Return the log files of trials' ranks, oldest order first; see `trials_logged`.

    Args:
        rank: None: all ranks.
    """
    folder = sweeps.home.folder(record.row.id, record.state.spec.storage)
    log_files = [log for name in trials_logged(record, trial) for log in _list_logs(folder, name)]
    return [log for log in log_files if rank is None or log.rank == rank]


def trials_logged(record: Record, trial: str | None) -> list[str]:
    """Return the trials whose logs to show: this one, or all failed ones, or else the last.

    Raises:
        NotFound: no such trial.
    """
    if trial is not None:
        check_trial(record, trial)
        return [trial]
    return list(record.failures()) or list(record.state.trials)[-1:]


def check_trial(record: Record, trial: str) -> None:
    """Check that a sweep has a trial of this name.

    Raises:
        NotFound: the sweep has no such trial.
    """
    if trial not in record.state.trials:
        sweep = record.row.id
        raise NotFound(f"{sweep} has no trial {trial}", f"`hposvc trials {sweep}` lists them")


def _read_state(sweeps: Sweeps, row: SweepRow) -> SweepState:
    """Return a sweep's state as of now."""
    return watch_row(sweeps, row).look()


def watch_row(sweeps: Sweeps, row: SweepRow) -> Watched:
    """Return a sweep as of its snapshot, or as of its beginning."""
    return fold(sweeps, row, specs.restore(row.spec))  # its code can be imported from here on


def _identity_of(row: SweepRow) -> str:
    """Return what tells the sweep from another one of the same id."""
    return repr((row.id, row.created, row.spec))


def _record(
    sweeps: Sweeps,
    row: SweepRow,
    state: SweepState,
    driver: DriverState,
    runs_of: RunsOf = all_trials,
) -> Record:
    recorder = Recorder(sweeps.home, row.id, state.spec, sweeps.journal)
    runs = sweeps.journal.runs(row.id, runs_of(state))
    registered = sweeps.journal.registered(row.id)
    waits = driver != "alive" and not state.finished
    return Record(
        row,
        state,
        runs,
        driver,
        recorder.behind,
        registered,
        undelivered=recorder.undelivered,
        queue=find_queue(sweeps.journal.store, row.id) if waits else None,
    )


def _list_logs(folder: Path, trial: str) -> list[Log]:
    matching = log_file(folder, trial, 0, 0).parent.glob("*-*.log")
    files = [file for file in matching if LOG.fullmatch(file.name)]
    files = [file for file in files if stat.S_ISREG(file.lstat().st_mode)]
    numbers = {file: file.stem.partition("-") for file in files}
    logs = [Log(trial, int(order), int(rank), file) for file, (order, _, rank) in numbers.items()]
    return sorted(logs, key=lambda log: (log.order, log.rank))
