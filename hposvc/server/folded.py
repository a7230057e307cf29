"""The states of the sweeps that requests read last, each followed under a lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Semaphore

from hposvc import api
from hposvc.errors import NotFound, SpecError, StoreError
from hposvc.events import UnknownEvent
from hposvc.journal.compression import Damaged
from hposvc.journal.follow import Follow, Followers
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import OpenSweep, Record
from hposvc.state.sweep import SweepState

# Of all states in memory, some 350 MB: a state takes some 700 bytes for each event of its sweep.
MOST_EVENTS = 500_000
MOST_HISTORIES = 2  # read at a time: all events of a long sweep take as much memory as its state


class Unreadable(Exception):
    """This version of hposvc can't read a sweep that is in the journal."""

    exit_code = 2  # of the command line: bad usage


@dataclass(frozen=True)
class FoldedSweep:
    """A sweep that is being read. Its state must not change meanwhile, so its lock is held."""

    sweeps: api.Sweeps
    follow: Follow[SweepState]

    @property
    def seq(self) -> int:
        """The number of the last event that the state has."""
        return self.follow.seq

    def look(self) -> SweepState:
        """Return the state as of now.

        Raises:
            Unreadable: another version wrote the sweep, or its packed events are damaged.
        """
        with naming_unreadable(self.follow.row):
            return self.follow.look()

    def record(self, runs_of: api.RunsOf = api.all_trials) -> Record:
        """Return the sweep as of now, with the MLflow runs of all trials or of chosen ones.

        Raises:
            Unreadable: see `look`.
        """
        with naming_unreadable(self.follow.row):
            return self.sweeps.record_of(self.follow.row, self.follow.look, runs_of)


class Folded:
    """The states of the sweeps that were read last."""

    def __init__(self, sweeps: api.Sweeps) -> None:
        self.sweeps = sweeps
        self.followers = Followers(partial(api.follow_row, sweeps), MOST_EVENTS)
        self._histories = Semaphore(MOST_HISTORIES)

    @contextmanager
    def open(self, row: SweepRow) -> Iterator[FoldedSweep]:
        """Open a sweep to be read, alone: make data of its state, and leave the block."""
        with self.followers.open(row) as follow:
            yield FoldedSweep(self.sweeps, follow)

    @contextmanager
    def reading_history(self, row: SweepRow) -> Iterator[OpenSweep]:
        """Open a sweep whose events are all to be read; some requests at a time may do so.

        Raises:
            Unreadable: see `FoldedSweep.look`.
        """
        with self._histories, naming_unreadable(row):
            yield OpenSweep(self.sweeps, row.id)


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
