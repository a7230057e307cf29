"""What people may ask of a sweep: to pause, end, go on for longer, try again, begin anew.

A living driver carries a request out, on whatever machine it is. Without one, an end or a pause is
carried out here and now; whatever needs slots waits for `resume`.
"""

import getpass
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from hposvc import api
from hposvc import spec as specs
from hposvc.driving import Driver
from hposvc.edits import LIMITS, edited
from hposvc.events import Attached, Verb
from hposvc.home import NotFound
from hposvc.journal import SweepRow
from hposvc.lease import DriverState
from hposvc.reading.problems import fail
from hposvc.steered import SweepPhase

NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True)
class Steered:
    """Whom a request went to."""

    sweep: str
    state: SweepPhase
    driver: DriverState
    place: str  # of the driver, host:pid; empty before the first


def steer(
    sweeps: api.Sweeps,
    sweep: str,
    verb: Verb,
    trial: str | None = None,
    changes: Mapping[str, object] = NOTHING,
) -> Steered:
    """Ask for something; what the verbs mean is told by hposvc.events.

    Raises:
        NotFound: no such sweep or trial.
        SpecError: a limit that is none, or a value that does not fit.
    """
    record = api.load(sweeps, sweep)
    row, phase, state = record.row, record.state.state, record.state
    if trial is not None:
        api.check_trial(record, trial)
    if verb == "extend":
        _check_changes(record, changes)
    if verb == "retry" and trial is None and not (record.failures() or state.finals.failed()):
        raise NotFound(f"{row.id} has no failed trial; `hposvc trials {row.id}` lists them all")
    if verb in ("extend", "retry") or not state.finished:
        sweeps.journal.request(row.id, verb, trial, changes, _asker())
        lost = record.driver != "alive" and trial is None
        if lost and verb in ("stop", "kill", "pause"):
            phase = Driver(sweeps.home, sweeps.journal, row).end().state
    return Steered(row.id, phase, record.driver, _place(sweeps, row))


def more_trials(record: api.Record, trials: int) -> dict[str, object]:
    """The change that gives a sweep so many trials on top of those that it has, or was to have."""
    if trials < 1:
        raise fail(f"is {trials}; give 1 or more", "--trials")
    most = record.state.spec.trials.max
    return {"trials.max": (len(record.state.trials) if most is None else most) + trials}


def fork(
    sweeps: api.Sweeps, sweep: str, set: Mapping[str, object], name: str | None = None
) -> SweepRow:
    """A new sweep from the spec of another, which learns from its trials; nothing runs yet.

    Raises:
        NotFound: no such sweep.
        SpecError: the changed spec is none, or has other metrics than the first one.
    """
    record = api.load(sweeps, sweep)
    data = {**specs.dump(record.state.spec), "warm_start": {"from": [record.row.id]}}
    return api.create(sweeps, api.validate(data, set), name)


def _check_changes(record: api.Record, changes: Mapping[str, object]) -> None:
    if not changes:
        message = f"is missing; give --trials N, or --set of one of {', '.join(LIMITS)}"
        raise fail(message, "what to extend", at_key=True)
    edited(record.state.spec, changes)
    if "fidelity.max" in changes and record.driver == "alive":
        sweep = record.row.id
        message = f"its ranks have the old one; `hposvc pause {sweep}`, extend it, and resume it"
        raise fail(f"can't be moved while a driver is at work: {message}", "fidelity.max")


def _place(sweeps: api.Sweeps, row: SweepRow) -> str:
    """Where the last driver is, host:pid."""
    events = (event for _, event in sweeps.journal.read(row.id))
    drivers = [event.driver for event in events if isinstance(event, Attached)]
    return drivers[-1] if drivers else ""


def _asker() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no such user: a container with a bare number
        return socket.gethostname()
