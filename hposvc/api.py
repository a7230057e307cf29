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
from hposvc.home import Home, NotFound, find
from hposvc.journal import Journal, SweepRow
from hposvc.lease import driver_state
from hposvc.problems import Problem, SpecError
from hposvc.runner import Watcher
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from trainables import load as trainables
from trainables.assignment import log_file


@dataclass(frozen=True)
class Sweeps:
    """An open home."""

    home: Home
    journal: Journal

    @classmethod
    def open(cls, path: Path | None = None) -> "Sweeps":
        """The home at `path`, or where HPOSVC_HOME says."""
        home = Home.of(path)
        return cls(home, home.journal())


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
    Driver(sweeps.home, sweeps.journal, row, address, watchers).drive()
    return status(sweeps, row.id)


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
    if not accept_code and not _load(sweeps, row).finished and _code(spec) != row.code:
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


def status(sweeps: Sweeps, sweep: str) -> dict[str, Any]:
    """A sweep in a few figures."""
    row = find(sweeps.journal, sweep)
    runs = sweeps.journal.runs(row.id)
    driver = driver_state(sweeps.journal.store, row.id)
    return summary.status(row.id, _load(sweeps, row), runs, driver)


def trials(sweeps: Sweeps, sweep: str) -> list[dict[str, Any]]:
    """All trials of a sweep."""
    row = find(sweeps.journal, sweep)
    return summary.trials(_load(sweeps, row), sweeps.journal.runs(row.id))


def best(sweeps: Sweeps, sweep: str) -> dict[str, Any] | None:
    """The best trial; None while no trial has a value."""
    row = find(sweeps.journal, sweep)
    return summary.best(row.id, _load(sweeps, row), sweeps.journal.runs(row.id))


def logs(sweeps: Sweeps, sweep: str, trial: str | None = None, rank: int = 0) -> list[Path]:
    """The files that a rank wrote during a trial's orders, oldest first; of all trials for None.

    Raises:
        NotFound: no such trial.
    """
    row = find(sweeps.journal, sweep)
    state = _load(sweeps, row)
    if trial is not None and trial not in state.trials:
        raise NotFound(f"{row.id} has no trial {trial}; `hposvc trials {row.id}` lists them")
    folder = sweeps.home.folder(row.id, state.spec.storage)
    names = list(state.trials) if trial is None else [trial]
    orders = range(1, state.next_order)
    files = [log_file(folder, name, order, rank) for name in names for order in orders]
    return [file for file in files if file.exists()]


def steer(
    sweeps: Sweeps, sweep: str, verb: Literal["stop", "kill"], trial: str | None = None
) -> SweepRow:
    """Ask for an end: `stop` at the next report, `kill` at once. A driver carries it out.

    Raises:
        NotFound: no such sweep or trial.
    """
    row = find(sweeps.journal, sweep)
    state = _load(sweeps, row)
    if trial is not None and trial not in state.trials:
        raise NotFound(f"{row.id} has no trial {trial}; `hposvc trials {row.id}` lists them")
    if not state.finished:
        sweeps.journal.request(row.id, verb, trial)
        if driver_state(sweeps.journal.store, row.id) != "alive" and trial is None:
            drive(sweeps, row)  # there is nobody else to end it
    return row


def _load(sweeps: Sweeps, row: SweepRow) -> SweepState:
    """The fold of a sweep's journal."""
    state = SweepState(specs.load(row.spec))
    for _, event in sweeps.journal.read(row.id):
        state.apply(event)
    return state


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
    state = _load(sweeps, row)
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
