"""Sinks: places that the runs of a sweep are sent to, such as an MLflow server.

hposvc/spec/sinks.py lists the sinks, beside which a spec can name classes of its user. Each has a
recorder process of its own (outbox.py) and a cursor of its own in the journal, so a sink that is
slow or away delays no other.
"""

import faulthandler
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from hposvc import spec as specs
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState
from hposvc.tracking.polling import HANG_S
from hposvc.tracking.projection import Projection, RunContent

# Messages that the driver prints, where a recorder's own log is read by few.
FOR_USERS = logging.getLogger("hposvc.recorder")


class Altered(Exception):
    """A tracker that answers does not hold what it was sent."""


@dataclass(frozen=True)
class SinkSetting:
    """The sweep that a sink is for; each sink is built from such a setting alone."""

    home: Home
    journal: Journal
    sweep: SweepRow
    spec: SweepSpec
    alive: Callable[[], None] = lambda: None  # to be called between requests: resets a watchdog

    @classmethod
    def of_task(cls, task: Mapping[str, Any]) -> "SinkSetting":
        """Return the setting of a recorder's task (recorder_process.py), with a watchdog."""
        home = Home(Path(task["path"]), task["database"], task["tracking_uri"])
        journal = home.journal()
        sweep = journal.find(task["sweep"])
        assert sweep is not None  # the driver works on it
        watchdog = partial(faulthandler.dump_traceback_later, HANG_S, exit=True)
        return cls(home, journal, sweep, specs.restore(sweep.spec), watchdog)

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return self.home.folder(self.sweep.id, self.spec.storage)


class Batch(NamedTuple):
    """The changes made by the events after the last batch, up to number `seq`."""

    seq: int
    entries: Mapping[str, RunContent]  # by run; the sweep's own run comes last


class Sink:
    """Holds the runs of a sweep; a method that a sink has no use for does nothing.

    Every method may raise: the recorder waits, opens the sink again, and goes on after the cursor.
    The cursor moves after `send`, so a death in between makes the last batches come again, and a
    sink must not hold anything twice.
    """

    name: ClassVar[str] = ""  # in SINKS; a user's own needs none
    # True: a batch holds all that is new, since requests are dear. False: a batch holds one event,
    # so batches are the same at each repetition.
    gathers: ClassVar[bool] = False
    # True: a sink that does not gather is sent metrics every few seconds, since calls are dear.
    waits: ClassVar[bool] = False

    def open(self) -> None:
        """Get ready, and find what the sink holds."""

    def resume_point(self, cursor: int, begun: Collection[str]) -> int:
        """Return the number of the event after which the sink needs batches.

        Args:
            cursor: according to the journal, the sink has all events up to this number; less is
                returned if the sink lost some of them.
            begun: the runs that these events begin.
        """
        return cursor

    def clear(self) -> None:
        """Drop what is held of the sweep: the journal has lost some of it; all is sent again."""

    def send(self, batches: Sequence[Batch]) -> None:
        """Store batches; they are durable when this returns."""

    def ensure_runs(self, trials: Sequence[str]) -> None:
        """Make runs for coming trials, so that each trial knows its run when it starts."""

    def withdraw_runs(self, begun: Collection[str]) -> None:
        """Stop handing out runs that were made in advance, except to trials that have begun."""

    def finish(self, projection: Projection) -> None:
        """Delete unused runs; if the sweep has ended, check what the sink holds.

        Args:
            projection: up to date; everything was sent.
        """

    def attach_report(self, state: SweepState) -> None:
        """Store the report in the sweep's folder, of a sink that has `has_report` in SINKS."""

    def close(self, state: SweepState) -> None:
        """Do what is left, which may take long. Called once, when everything was sent."""


def recorder_lock(folder: Path, sink: str) -> Path:
    """Return the file in a sweep's folder that the recorder of a sink locks."""
    return folder / f"recorder-{sink}.lock"
