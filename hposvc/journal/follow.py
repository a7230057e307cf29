"""The one reader of sweeps: a fold of their events, to which each look applies the new ones only.

What is folded is a parameter, such as a sweep's state or what charts need, and so is where the
events come from: this home's journal, or a server.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Generic, Protocol, TypeVar

from hposvc.events import Event, Finished, to_json
from hposvc.journal import snapshot
from hposvc.journal.journal import SweepRow

OWN_EVENTS = 100  # what a fold without events weighs


class Fold(Protocol):
    """A state that events are applied to, in their order."""

    def apply(self, event: Event) -> object:
        """Apply the next event."""


class EventSource(Protocol):
    """Where events are read from: this home's journal, or a server."""

    def read(self, sweep: str, after: int) -> Iterable[tuple[int, Event]]:
        """Return a sweep's events after a number, each with its number."""


F = TypeVar("F", bound=Fold)


def ignore(event: Event) -> None:
    """Do nothing with an event."""


@dataclass
class Follow(Generic[F]):
    """A sweep that is read repeatedly; each look applies only the new events of the journal."""

    source: EventSource
    row: SweepRow
    begin: Callable[[], F]  # returns the fold of no events
    file: Path | None = None  # of the snapshot of a long journal; None: there is none
    seq: int = 0  # number of the last event applied
    last: Event | None = None  # the event of that number; None: nothing was read yet
    _fold: F | None = None  # None: nothing was read yet
    _snapshot_seq: int = 0  # of the last event in the snapshot; 0: there is none

    @property
    def state(self) -> F:
        """The fold as of the last look; at first, as of the snapshot or of no events."""
        if self._fold is None:
            cached = self._load()
            self._fold = self.begin() if cached is None else cached
        return self._fold

    @property
    def weight(self) -> int:
        """How much memory the fold takes, in events."""
        return OWN_EVENTS + self.seq

    def look(self, tell: Callable[[Event], None] = ignore) -> F:
        """Return the fold as the journal has it now; the next look changes this object.

        The fold begins again if an older copy was put in the journal's place meanwhile.

        Args:
            tell: called with each new event, after it was applied.
        """
        state = self.state
        # An ended sweep may be packed: a pack is not to be unpacked at each look.
        known = self.last is not None and not isinstance(self.last, Finished)
        events = iter(self.source.read(self.row.id, self.seq - known))
        if known and not self._is_last(next(events, None)):
            self._begin_again()
            return self.look(tell)
        event = self.apply(events, tell)
        if event is not None and self.file and snapshot.is_due(self._snapshot_seq, self.seq):
            self._snapshot_seq = self.seq
            latest = snapshot.Snapshot(self.seq, to_json(event), state)
            snapshot.save(self.file, self.identity, latest)
        return state

    def apply(
        self, numbered: Iterable[tuple[int, Event]], tell: Callable[[Event], None] = ignore
    ) -> Event | None:
        """Apply events read after the last one, and return the last of them; None: there are none.

        After an event that can't be applied the fold begins again, as it may have that in part.

        Args:
            tell: called with each event, after it was applied.
        """
        state, event = self.state, None
        for seq, event in numbered:
            try:
                state.apply(event)
            except BaseException:
                self._begin_again()
                raise
            self.seq, self.last = seq, event
            tell(event)
        return event

    def read_to(self, last: int) -> F:
        """Return the fold as of an event, and leave later events to the next look."""
        after = self.source.read(self.row.id, self.seq)
        self.apply(takewhile(lambda numbered: numbered[0] <= last, after))
        return self.state

    def _begin_again(self) -> None:
        self.seq, self.last, self._fold = 0, None, None

    def _is_last(self, numbered: tuple[int, Event] | None) -> bool:
        assert self.last is not None
        ours = (self.seq, to_json(self.last))
        return numbered is not None and (numbered[0], to_json(numbered[1])) == ours

    @property
    def identity(self) -> str:
        """The text that tells the sweep from another one of the same id."""
        return repr((self.row.id, self.row.created, self.row.spec))

    def _load(self) -> F | None:
        """Return the fold of the snapshot; None: there is none that the journal goes on from."""
        cached = None if self.file is None else snapshot.load(self.file, self.identity)
        if cached is not None:
            # A journal that was set back to a backup may hold another event of this number.
            for seq, event in self.source.read(self.row.id, cached.seq - 1):
                if seq == cached.seq and to_json(event) == cached.event:
                    self.seq = self._snapshot_seq = seq
                    self.last = event
                    state: F = cached.state
                    return state
                break
        return None


@dataclass
class _Entry(Generic[F]):
    follow: Follow[F]
    lock: Lock = field(default_factory=Lock)


class Followers(Generic[F]):
    """The sweeps that were read last, each read by one thread at a time.

    Memory is bounded by the number of events behind all folds together.
    """

    def __init__(self, follow: Callable[[SweepRow], Follow[F]], most_events: int) -> None:
        self.follow, self.most_events = follow, most_events
        self._lock = Lock()
        self._entries: OrderedDict[str, _Entry[F]] = OrderedDict()  # the last one was read last

    @contextmanager
    def open(self, row: SweepRow) -> Iterator[Follow[F]]:
        """Open a sweep to be read, alone: look, make data of the fold, and leave the block."""
        entry = self._entry(row)
        with entry.lock:
            yield entry.follow
        self._evict()

    def look(self, row: SweepRow) -> F:
        """Return a sweep's fold as of now; another thread's look may change it."""
        with self.open(row) as follow:
            return follow.look()

    @property
    def events(self) -> int:
        """The number of events behind all folds in memory."""
        with self._lock:
            return sum(entry.follow.weight for entry in self._entries.values())

    def _entry(self, row: SweepRow) -> _Entry[F]:
        with self._lock:
            entry = self._entries.get(row.id)
            if entry is None or not _is_same(entry.follow.row, row):
                entry = self._entries[row.id] = _Entry(self.follow(row))
            self._entries.move_to_end(row.id)
            return entry

    def _evict(self) -> None:
        """Forget the folds that were not read for longest, until the others fit."""
        with self._lock:
            events = sum(entry.follow.weight for entry in self._entries.values())
            for name in [*self._entries][:-1]:
                if events <= self.most_events:
                    return
                if not self._entries[name].lock.locked():  # else somebody reads it
                    events -= self._entries.pop(name).follow.weight


def _is_same(row: SweepRow, other: SweepRow) -> bool:
    """Return whether rows of one id are of one sweep: a deleted one may have left it to another."""
    return (row.created, row.spec) == (other.created, other.spec)
