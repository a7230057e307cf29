"""Functions that create, drive and read the sweeps of a home, for the verbs and for a server.

Errors: SpecError (bad usage, exit code 2), NotFound (4), OutOfReach and StoreError (5), Busy and
Fenced (another driver has the sweep, 2), Interrupted (130).
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from hposvc import spec as specs
from hposvc.backends.backend import Backend, Setting
from hposvc.driver.driver import Driver
from hposvc.driver.earlier_sweeps import with_sweeps_found
from hposvc.driver.loop import Watcher
from hposvc.driver.warm_start import resolve
from hposvc.errors import SpecError, StoreError, fail
from hposvc.events import DriverState, Event
from hposvc.journal.database import retry_until_answered
from hposvc.journal.follow import Follow
from hposvc.journal.home import SIGNATURE, VARIANTS, Home, as_store_errors, claim, clear, find
from hposvc.journal.journal import Journal, SweepRow
from hposvc.journal.lease import driver_state
from hposvc.journal.logs import Log, list_logs
from hposvc.journal.waiting import SweepWait, find_waiting
from hposvc.open_sweep import OpenSweep, Record, trials_logged
from hposvc.operation import P, R, ServedFunction
from hposvc.spec import SweepSpec, fingerprint
from hposvc.spec.paths import store_url
from hposvc.spec.sinks import sink_paths
from hposvc.spec.types import check_id
from hposvc.spec.variants import freeze
from hposvc.state.sweep import SweepState
from hposvc.tracking.recorder_process import Recorder
from trainables.contract import StoreFailed
from trainables.storage import stores

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


def all_sweeps(row: SweepRow) -> bool:
    """Show all sweeps."""
    return True


@dataclass(frozen=True)
class Sweeps:
    """An open home, with its journal."""

    home: Home
    journal: Journal
    by: str = ""  # who works with them, if they are served; empty: whoever this process belongs to
    visible: Callable[[SweepRow], bool] = all_sweeps  # to who works with them

    @classmethod
    def open(cls, path: Path | None = None) -> Self:
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
    ) -> Record:
        """Return a sweep as its journal has it now; the next look changes the record's state."""
        # First the driver: one that ends now writes its events before it lets go.
        driver = driver_state(self.journal.store, row.id)
        return _record(self, row, look(), driver, runs_of)

    def driver_of(self, row: SweepRow) -> DriverState:
        """Return whether a driver is at work on a sweep."""
        return driver_state(self.journal.store, row.id)

    def waiting_of(self, row: SweepRow) -> SweepWait | None:
        """Return what a sweep waits for, a driver or its first slot; None: nothing."""
        return find_waiting(self.journal.store, row.id)

    def find(self, name: str) -> SweepRow:
        """Return a sweep's row, by its id, a beginning of it, or `last`.

        Raises:
            NotFound: there is no such sweep.
        """
        return find(self.journal, name)

    def follow(self, name: str) -> Follow[SweepState]:
        """Return a sweep so that it can be read repeatedly; see `find`."""
        return follow_row(self, self.find(name))

    def carry_out(self, operation: ServedFunction[P, R], given: Mapping[str, Any]) -> R:
        """Carry an operation out; return the answer.

        Args:
            given: arguments by their names; those left out have the function's defaults.
        """
        return operation.function(self, **given)

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
            for log in list_logs(self.home.folder(row.id, row.spec.get("storage")), trial)
            if rank in (None, log.rank) and order in (None, log.order)
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
            raise fail(error, "--id") from error
    name = identifier or new_id(spec)
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
        clear(sweeps.home.folder(name, spec.storage), sink_paths())
        raise
    if not sweeps.journal.create(row):  # another process created the id a moment ago
        raise id_taken
    return row


def new_id(spec: SweepSpec) -> str:
    """Return an id for a new sweep: its name with six random digits."""
    return f"{spec.name}-{secrets.token_hex(3)}"


def prepare(
    sweeps: Sweeps,
    spec: SweepSpec,
    name: str,
    code: Mapping[str, Any],
    readable: Callable[[SweepRow], bool] = lambda row: True,
) -> SweepRow:
    """Return the row of a new sweep that is to be recorded; make its folder, with its code.

    No store is opened: a server does this for people whom it need not trust.

    Args:
        name: the sweep's id.
        code: the fingerprint of its code; empty: its driver makes it.
        readable: whether `warm_start: auto` may take a sweep.

    Raises:
        SpecError, NotFound, StoreError: see `create`.
    """
    spec = resolve(sweeps.journal, with_sweeps_found(sweeps.journal, spec, readable))
    folder = sweeps.home.folder(name, spec.storage)
    claim(folder, f"{sweeps.journal.store}")
    rows = sweeps.journal.sweeps() if spec.variants else ()
    others = [sweeps.home.folder(row.id, row.spec.get("storage")) for row in rows]
    try:
        freeze(spec, folder / VARIANTS, [other / VARIANTS for other in others])
    except (SpecError, OSError):
        if sweeps.journal.find(name) is None:  # else another process has begun it a moment ago
            clear(folder, sink_paths())
        raise
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
    accept_code: bool = False,
    embedded: Embedded | None = None,
    delivered: Mapping[str, str] | None = None,
) -> Record:
    """Run a recorded sweep to its end, from the beginning or from where its last driver stopped.

    Whoever asked for it: this is what `run` does in a terminal, and a server's driver elsewhere.
    Of a sweep that has ended, only its sinks are brought up to date.

    Args:
        address: of a Ray cluster; None: Ray of this machine.
        accept_code: continue although the trainable's source has changed.
        embedded: opens a backend that works within this call; None: that of the sweep's engine.
        delivered: the secrets of a Ray job; None: they are read from this process's environment.

    Raises:
        SpecError: the code can't be imported, does not fit, or has changed since the sweep began.
        StoreError: a file of the home, or of the sweep's folder, can't be read or written.
    """
    row = check_code(sweeps, row, accept_code)
    with as_store_errors(sweeps.home.path, sweeps.home.folder(row.id, row.spec.get("storage"))):
        driver = Driver(sweeps.home, sweeps.journal, row, address, watchers, delivered, embedded)
        state = driver.drive()
    ask_driver = partial(driver_state, sweeps.journal.store, row.id)
    record = retry_until_answered(lambda: _record(sweeps, row, state, ask_driver()), row.id)
    return replace(record, report_begun=driver.report_begun)


def check_code(sweeps: Sweeps, row: SweepRow, accept_code: bool) -> SweepRow:
    """Check code that only its server has recorded; that of a sweep with trials must be as before.

    Returns:
        the row with its parsed spec, by which a row is known whose code this process has checked.

    Raises:
        SpecError: the code can't be imported, does not fit, or has changed.
    """
    if isinstance(row.parsed, SweepSpec):
        return row
    spec = specs.restore(row.spec)
    if not row.code:
        checked = validate(specs.dump(spec), {})
        sweeps.journal.record_code(row.id, fingerprint.describe(checked))
    elif not (accept_code or sweeps.follow(row.id).look().finished):
        fingerprint.check_unchanged(row.id, row.spec, row.code)
    return replace(row, parsed=spec)


def load(sweeps: Sweeps, sweep: str) -> Record:
    """Read a sweep from its journal.

    Raises:
        NotFound: no such sweep.
    """
    return OpenSweep(sweeps, sweep).record()


def logs(
    sweeps: Sweeps, record: Record, trial: str | None = None, rank: int | None = None
) -> list[Log]:
    """Return the log files of trials' ranks, oldest order first; see `trials_logged`.

    Args:
        rank: None: all ranks.
    """
    folder = sweeps.home.folder(record.row.id, record.state.spec.storage)
    log_files = [log for name in trials_logged(record, trial) for log in list_logs(folder, name)]
    return [log for log in log_files if rank is None or log.rank == rank]


def follow_row(sweeps: Sweeps, row: SweepRow) -> Follow[SweepState]:
    """Return a sweep so that it can be read repeatedly; once read, its code can be imported."""
    file = sweeps.home.snapshot(row.id)
    return Follow(sweeps, row, lambda: SweepState(specs.restore(row.spec)), file)


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
    requests = sweeps.journal.requests(row.id)
    return Record(
        row,
        state,
        runs,
        driver,
        recorder.behind,
        registered,
        waiting=None if state.finished else find_waiting(sweeps.journal.store, row.id),
        proposed=[asked.changes for _, asked in requests if asked.verb == "propose"],
    )
