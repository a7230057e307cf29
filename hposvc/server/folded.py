"""Sweeps as the journal describes them, kept in memory: a look applies new events only.

Memory is bounded by the number of events behind all states together: a state takes some 700 bytes
for each event of its sweep.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Semaphore

from hposvc import api
from hposvc.errors import NotFound, SpecError, StoreError
from hposvc.events import UnknownEvent
from hposvc.journal.compression import Damaged
from hposvc.journal.journal import SweepRow
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

MOST_EVENTS = 500_000  # of all states in memory, some 350 MB
MOST_HISTORIES = 2  # read at a time: all events of a long sweep take as much memory as its state
OWN_EVENTS = 100  # what a state without events weighs


class Unreadable(Exception):
    """This version of hposvc can't read a sweep that is in the journal."""

    exit_code = 2  # of the command line: bad usage


@dataclass
class _Entry:
    row: SweepRow
    lock: Lock = field(default_factory=Lock)
    watched: api.Watched | None = None  # None: not read yet
    ranked: tuple[int, list[TrialState]] = (-1, [])  # with the number of the last event

    @property
    def weight(self) -> int:
        return OWN_EVENTS + (0 if self.watched is None else self.watched.seq)


@dataclass(frozen=True)
class FoldedSweep:
    """A sweep that is being read. Its state must not change meanwhile, so its lock is held."""

    sweeps: api.Sweeps
    watched: api.Watched
    entry: _Entry

    @property
    def seq(self) -> int:
        """The number of the last event that the state has."""
        return self.watched.seq

    def ranked(self) -> list[TrialState]:
        """Return the trials of the state, best first; ranked once for many who look."""
        if self.entry.ranked[0] != self.seq:
            self.entry.ranked = self.seq, self.watched.state.ranked()
        return self.entry.ranked[1]

    def look(self) -> SweepState:
        """Return the state as of now."""
        with naming_unreadable(self.watched.row):
            return self.watched.look()

    def record(self, runs_of: api.RunsOf = api.all_trials) -> api.Record:
        """Return the sweep as of now, with the MLflow runs of all trials or of chosen ones."""
        with naming_unreadable(self.watched.row):
            return self.sweeps.record_of(self.watched.row, self.watched.look, runs_of)


class Folded:
    """The states of the sweeps that were read last, each with a lock."""

    def __init__(self, sweeps: api.Sweeps, most_events: int = MOST_EVENTS) -> None:
        self.sweeps, self.most_events = sweeps, most_events
        self._histories = Semaphore(MOST_HISTORIES)
        self._lock = Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the last one was read last

    @contextmanager
    def open(self, row: SweepRow) -> Iterator[FoldedSweep]:
        """Open a sweep to be read, alone: make data of its state, and leave the block.

        Raises:
            Unreadable: another version wrote the sweep, or its packed events are damaged.
        """
        entry = self._entry(row)
        with entry.lock:
            if entry.watched is None:
                with naming_unreadable(row):
                    entry.watched = api.watch_row(self.sweeps, row)
                    entry.ranked = (-1, [])
            try:
                yield FoldedSweep(self.sweeps, entry.watched, entry)
            except Unreadable:
                entry.watched = None  # an event may have been applied in part
                raise
        self._evict()

    def look(self, row: SweepRow) -> SweepState:
        """Return a sweep's state, for `ls`; another thread's look may change it.

        Raises:
            Exception: whatever made the sweep unreadable.
        """
        try:
            with self.open(row) as sweep:
                return sweep.look()
        except Unreadable as error:
            raise error.__cause__ or error from None

    @contextmanager
    def reading_history(self, row: SweepRow) -> Iterator[api.OpenSweep]:
        """Open a sweep whose events are all to be read; some requests at a time may do so.

        Raises:
            Unreadable: see `open`.
        """
        with self._histories, naming_unreadable(row):
            yield api.OpenSweep(self.sweeps, row.id)

    @property
    def events(self) -> int:
        """The number of events behind all states in memory."""
        with self._lock:
            return sum(entry.weight for entry in self._entries.values())

    def _entry(self, row: SweepRow) -> _Entry:
        with self._lock:
            entry = self._entries.get(row.id)
            # A sweep that was deleted may have left its id to another one.
            if entry is None or (entry.row.created, entry.row.spec) != (row.created, row.spec):
                entry = self._entries[row.id] = _Entry(row)
            self._entries.move_to_end(row.id)
            return entry

    def _evict(self) -> None:
        """Forget the states that were not read for longest, until the others fit."""
        with self._lock:
            events = sum(entry.weight for entry in self._entries.values())
            while events > self.most_events and len(self._entries) > 1:
                _, entry = self._entries.popitem(last=False)
                events -= entry.weight


@contextmanager
def naming_unreadable(row: SweepRow) -> Iterator[None]:
    """Report whatever events of another version break as a sweep that can't be read here."""
    try:
        yield
    except StoreError as error:
        if not isinstance(error.__cause__, Damaged):
            raise
        raise Unreadable(f"{row.id} can't be read: {error}") from error
    except (NotFound, Unreadable):
        raise
    except (SpecError, UnknownEvent) as error:
        raise Unreadable(f"{row.id} can't be read: {error}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise Unreadable(f"{row.id} can't be read by this version ({what})") from error
