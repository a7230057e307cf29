"""A recorded sweep to be read, wherever its journal is: here, or on a server."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol, TypeVar

from hposvc import spec as specs
from hposvc.errors import NotFound
from hposvc.events import DriverState, Event
from hposvc.journal.follow import EventSource, F, Fold, Follow
from hposvc.journal.journal import SweepRow
from hposvc.journal.waiting import SweepWait
from hposvc.spec import SweepSpec
from hposvc.state import summary
from hposvc.state.answers import Best, BestTrials, Progress, Trial
from hposvc.state.doubts import nearest_to_limits
from hposvc.state.sweep import SweepState
from hposvc.text import doc
from searchers import Params

LOG_BYTES = 2**20  # of a log that are read at a time
LOOK_S = 0.5  # between two looks at a sweep whose logs are followed


@dataclass(frozen=True, kw_only=True)
class Status(Progress):
    """A sweep in a few figures."""

    waiting: Annotated[SweepWait | None, doc("null: for nothing.")]
    registered: Annotated[str | None, doc("What became of the best trial in MLflow.")]


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
    waiting: SweepWait | None = None  # for a driver, or for its first slot
    report_begun: bool = False  # a process writes the report of the sweep, which has just ended
    proposed: Sequence[Params] = ()  # configurations that no driver has taken yet

    @property
    def phase(self) -> str:
        """The sweep's state for display: INTERRUPTED if it is RUNNING without a driver."""
        return summary.phase(self.state, self.driver)

    def status(self) -> Status:
        """Return the sweep's status in a few figures."""
        progress = summary.status(self.row.id, self.state, self.runs, self.driver)
        queued_s, proposals = progress.queued_s, progress.proposals
        if self.waiting is not None and not self.state.driven:
            queued_s = round(max(0.0, time.time() - self.waiting.since), 3)
        queued = proposals.queued + len(self.proposed)
        figures = vars(progress) | {
            "queued_s": queued_s,
            "proposals": replace(proposals, queued=queued),
        }
        return Status(
            **figures,
            waiting=self.waiting,
            registered=self.registered or None,
        )

    def trials(self) -> list[Trial]:
        """Return all trials, in the order in which they were proposed."""
        return summary.trials(self.state, self.runs, self.driver)

    def best(self) -> BestTrials:
        """Return the best trial, or the front if there are several metrics.

        None: no trial has a value yet.
        """
        return summary.best(self.row.id, self.state, self.runs)

    def front(self) -> list[Best]:
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


class Stateful(Fold, Protocol):
    """A fold that has the sweep's state beside what else it makes of the events."""

    state: SweepState


S = TypeVar("S", bound=Stateful)


class SweepSource(EventSource, Protocol):
    """Where sweeps are read from: this home's journal, or a server."""

    def record_of(self, row: SweepRow, look: Callable[[], SweepState]) -> Record:
        """Return a sweep as its journal has it now; `look` reads its state."""

    def driver_of(self, row: SweepRow) -> DriverState:
        """Return whether a driver is at work on a sweep."""

    def waiting_of(self, row: SweepRow) -> SweepWait | None:
        """Return what a sweep waits for, a driver or its first slot; None: nothing."""

    def find(self, name: str) -> SweepRow:
        """Return a sweep's row, by its id, a beginning of it, or `last`."""

    def follow(self, name: str) -> Follow[SweepState]:
        """Return a sweep so that it can be read repeatedly; see `find`."""

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


@dataclass(frozen=True)
class OpenSweep:
    """A recorded sweep to be read, wherever its journal is."""

    source: SweepSource
    name: str  # its id, the beginning of the id, or `last`

    def follow(self) -> Follow[SweepState]:
        """Return the sweep so that it can be read repeatedly."""
        return self.source.follow(self.name)

    def record(self) -> Record:
        """Read the sweep from its journal."""
        follow = self.follow()
        return self.source.record_of(follow.row, follow.look)

    def record_as(self, begin: Callable[[SweepSpec], S]) -> tuple[Record, S]:
        """Read the sweep from its journal, and what a fold that has its state makes of it.

        Args:
            begin: see `follow_as`.
        """
        follow = self.follow_as(begin)
        return self.source.record_of(follow.row, lambda: follow.look().state), follow.state

    def follow_as(self, begin: Callable[[SweepSpec], F]) -> Follow[F]:
        """Return the sweep so that it can be read repeatedly as another fold than its state.

        Args:
            begin: returns the fold of no events, for the spec with which the sweep began.
        """
        row = self.source.find(self.name)
        return Follow(self.source, row, lambda: begin(specs.restore(row.spec)))

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
        for record in _looks(self.source, self.follow(), trial):
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


def _looks(source: SweepSource, follow: Follow[SweepState], trial: str | None) -> Iterator[Record]:
    """Yield a sweep every now and then, the last time when it or the trial has ended."""
    while True:
        record = source.record_of(follow.row, follow.look)
        over = record.driver != "alive" or record.state.finished
        if trial is not None:
            check_trial(record, trial)
            over = over or record.state.trials[trial].over
        yield record
        if over:
            return
        time.sleep(LOOK_S)


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
