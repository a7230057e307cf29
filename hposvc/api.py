"""What people can do with sweeps: one function per verb of the command line.

Errors: SpecError (bad usage, exit code 2), NotFound (4), OutOfReach and StoreError (5), Busy and
Fenced (another driver has the sweep, 2), Interrupted (130).
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hposvc import spec as specs
from hposvc import summary
from hposvc.driving import Driver
from hposvc.events import Attached
from hposvc.home import Home, NotFound, find
from hposvc.journal import Journal, SweepRow
from hposvc.lease import DriverState, driver_state
from hposvc.problems import Problem, SpecError
from hposvc.runner import Watcher
from hposvc.spec import SweepSpec
from hposvc.state import SweepPhase, SweepState
from hposvc.store import StoreError
from trainables import load as trainables
from trainables.assignment import log_file


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
class Log:
    """What one rank wrote during one order."""

    trial: str
    order: int
    rank: int
    path: Path


@dataclass(frozen=True)
class Steered:
    """Whom a request went to."""

    sweep: str
    state: SweepPhase  # of the sweep; one that has ended needs no steering
    driver: DriverState
    place: str  # of the driver, host:pid; empty before the first


def validate(source: Path | Mapping[str, object], set: Mapping[str, object]) -> SweepSpec:
    """Check all that can be known without running."""
    return specs.check(source, set)


def create(sweeps: Sweeps, spec: SweepSpec, identifier: str | None = None) -> SweepRow:
    """Record a new sweep; nothing runs yet.

    Raises:
        SpecError: the id is taken.
    """
    name = identifier or f"{spec.name}-{secrets.token_hex(3)}"
    row = SweepRow(name, spec.name, spec.project, time.time(), specs.dump(spec), _code(spec))
    if not sweeps.journal.create(row):
        message = f"there is a sweep {name} already; `hposvc resume {name}` goes on with it"
        raise SpecError([Problem(("--id",), message)])
    return row


def drive(
    sweeps: Sweeps, row: SweepRow, watchers: Sequence[Watcher] = (), address: str | None = None
) -> dict[str, Any]:
    """Run a recorded sweep to its end, or go on with one; its status."""
    state = Driver(sweeps.home, sweeps.journal, row, address, watchers).drive()
    return summary.status(row.id, state, sweeps.journal.runs(row.id), "none")


def resume(
    sweeps: Sweeps,
    sweep: str,
    watchers: Sequence[Watcher] = (),
    address: str | None = None,
    accept_code: bool = False,
) -> dict[str, Any]:
    """Go on with a sweep from its journal; one that has ended is reconciled with MLflow.

    Raises:
        SpecError: the trainable's source changed since the sweep began, and it is not accepted.
    """
    row = find(sweeps.journal, sweep)
    spec = specs.load(row.spec)
    if not accept_code and not _fold(sweeps, row).finished and _code(spec) != row.code:
        message = (
            f"{spec.trainable} changed since {row.id} began; "
            "go on with the new code by --accept-code, or put the old one back"
        )
        raise SpecError([Problem(("trainable",), message)])
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


def load(sweeps: Sweeps, sweep: str) -> tuple[SweepRow, SweepState]:
    """A sweep, and all that its journal says of it.

    Raises:
        NotFound: no such sweep.
    """
    row = find(sweeps.journal, sweep)
    return row, _fold(sweeps, row)


def driver(sweeps: Sweeps, sweep: str) -> DriverState:
    """Whether a driver is at work on the sweep with this whole id."""
    return driver_state(sweeps.journal.store, sweep)


def status(sweeps: Sweeps, sweep: str) -> dict[str, Any]:
    """A sweep in a few figures."""
    row, state = load(sweeps, sweep)
    return summary.status(row.id, state, sweeps.journal.runs(row.id), driver(sweeps, row.id))


def trials(sweeps: Sweeps, sweep: str) -> list[dict[str, Any]]:
    """All trials of a sweep."""
    row, state = load(sweeps, sweep)
    return summary.trials(state, sweeps.journal.runs(row.id))


def best(sweeps: Sweeps, sweep: str) -> dict[str, Any] | None:
    """The best trial; None while no trial has a value."""
    row, state = load(sweeps, sweep)
    return summary.best(row.id, state, sweeps.journal.runs(row.id))


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
    row, state = load(sweeps, sweep)
    if trial is not None:
        _check_trial(row, state, trial)
        names = [trial]
    else:
        names = [failed.id for failed in summary.failures(state)] or list(state.trials)[-1:]
    folder = sweeps.home.folder(row.id, state.spec.storage)
    found = [log for name in names for log in _logs(folder, name)]
    return [log for log in found if rank is None or log.rank == rank]


def steer(
    sweeps: Sweeps, sweep: str, verb: Literal["stop", "kill"], trial: str | None = None
) -> Steered:
    """Ask for an end: `stop` at the next report, `kill` at once. A driver carries it out.

    A sweep without a living driver is ended here; its trial is when it is resumed.

    Raises:
        NotFound: no such sweep or trial.
    """
    row, state = load(sweeps, sweep)
    if trial is not None:
        _check_trial(row, state, trial)
    found = driver(sweeps, row.id)
    if not state.finished:
        sweeps.journal.request(row.id, verb, trial)
        if found != "alive" and trial is None:
            drive(sweeps, row)  # there is nobody else to end it
    return Steered(row.id, state.state, found, _place(sweeps, row))


def _fold(sweeps: Sweeps, row: SweepRow) -> SweepState:
    """All that the journal says of a sweep."""
    state = SweepState(specs.load(row.spec))
    for _, event in sweeps.journal.read(row.id):
        state.apply(event)
    return state


def _place(sweeps: Sweeps, row: SweepRow) -> str:
    """Where the last driver is, host:pid."""
    events = (event for _, event in sweeps.journal.read(row.id) if isinstance(event, Attached))
    return max(events, key=lambda event: event.time, default=Attached(0.0, "")).driver


def _check_trial(row: SweepRow, state: SweepState, trial: str) -> None:
    if trial not in state.trials:
        raise NotFound(f"{row.id} has no trial {trial}; `hposvc trials {row.id}` lists them")


def _logs(folder: Path, trial: str) -> list[Log]:
    files = log_file(folder, trial, 0, 0).parent.glob("*-*.log")
    numbers = {file: file.stem.partition("-") for file in files}
    logs = [Log(trial, int(order), int(rank), file) for file, (order, _, rank) in numbers.items()]
    return sorted(logs, key=lambda log: (log.order, log.rank))


def _code(spec: SweepSpec) -> dict[str, Any]:
    """What the trainable is, so that a change of it is seen."""
    if spec.trainable is None:
        return {}
    return {"trainable": spec.trainable, "sha256": trainables.source_hash(spec.trainable)}


def _tagged(row: SweepRow, tag: str) -> bool:
    name, given, value = tag.partition("=")
    tags = row.spec.get("tags", {})
    return name in tags and (not given or str(tags[name]) == value)


def _listed(sweeps: Sweeps, row: SweepRow) -> dict[str, Any]:
    state = _fold(sweeps, row)
    value = None if state.best is None else state.trials[state.best].value
    return {
        "sweep": row.id,
        "name": row.name,
        "project": row.project,
        "state": state.state,
        "created": row.created,
        "trials": len(state.trials),
        "best_value": value,
    }
