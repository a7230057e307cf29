"""Read and steer a sweep wherever its journal is: in this home, or on a server.

A verb calls a function of this module with a place: the sweeps of this home, or a server's. For
those of a server, `routed` calls the function of hposvc/remote/server that has the same name.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.driver.warm_start import resolve
from hposvc.errors import OutOfReach, fail, shown
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from hposvc.operations import requests, start
from hposvc.remote.server import following, steering, submission
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec

NAMED = 5  # differences of two specs that are named
FOLLOW_S = 0.5  # seconds between two reads of the ranks' logs

Place: TypeAlias = api.Sweeps | ServedSweeps
H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def routed(
    there: Callable[Concatenate[ServedSweeps, P], R],
) -> Callable[[Callable[Concatenate[H, P], S]], Callable[Concatenate[H | ServedSweeps, P], R | S]]:
    """Return a decorator of a function for this home's sweeps; `there` is that for a server's.

    Their types say that both take the same arguments.
    """

    def decorate(
        here: Callable[Concatenate[H, P], S],
    ) -> Callable[Concatenate[H | ServedSweeps, P], R | S]:
        @wraps(here)
        def call(place: H | ServedSweeps, /, *args: P.args, **kwargs: P.kwargs) -> R | S:
            if isinstance(place, ServedSweeps):
                return there(place, *args, **kwargs)
            return here(place, *args, **kwargs)

        return call

    return decorate


steer = routed(steering.steer)(requests.steer)
run = routed(submission.run)(start.run)
fork = routed(submission.fork)(start.fork)
resume = routed(steering.resume)(reproduction.resume)
reproduce = routed(submission.reproduce)(reproduction.reproduce)
extend = routed(steering.extend)(requests.extend)
retry = routed(steering.retry)(requests.retry)


@routed(steering.run_or_resume)
def run_or_resume(
    sweeps: api.Sweeps,
    spec: SweepSpec,
    identifier: str,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> reproduction.Trained:
    """Run a new sweep of this id, or continue the one that has it, if that has the same spec.

    Raises:
        SpecError: the sweep has another spec, or its code has changed; see `run` and `resume`.
        Busy: another driver is at work on the sweep.
    """
    row = sweeps.journal.find(identifier)
    if row is None:
        return reproduction.Trained(start.run(sweeps, spec, identifier, address, watching), None)
    _check_same_spec(row, resolve(sweeps.journal, spec))
    return reproduction.resume(sweeps, identifier, False, address, watching)


def _check_same_spec(row: SweepRow, spec: SweepSpec) -> None:
    """Check that a recorded sweep has this spec.

    Raises:
        SpecError: it has another one; the message has the values that differ.
    """
    recorded, given = (
        specs.flat(specs.dump(one_spec)) for one_spec in (specs.restore(row.spec), spec)
    )
    found_then = spec.warm_start is not None and spec.warm_start.is_auto
    differing = [
        f"{key} is {shown(recorded.get(key))} there and {shown(given.get(key))} here"
        for key in dict.fromkeys([*recorded, *given])
        if recorded.get(key) != given.get(key)
        and not (found_then and key.partition(".")[0] == "warm_start")
    ]
    if differing:
        more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
        raise fail(
            f"the sweep {row.id} has another spec: {'; '.join(differing[:NAMED])}{more}. "
            f"`hposvc resume {row.id}` continues it as it is, `hposvc extend {row.id}` with more "
            "trials; a new sweep needs another id",
            "--id",
        )


@routed(following.await_rest)
def await_rest(sweeps: api.Sweeps, sweep: str, watching: api.Watching = api.unwatched) -> Record:
    """Wait until a sweep that another process drives has ended or is paused.

    Args:
        watching: what shows a server's sweep meanwhile; nothing shows one of this home.

    Raises:
        OutOfReach: the driver ended before the sweep did.
    """
    follow = sweeps.follow(sweep)
    while (record := sweeps.record_of(follow)).phase == "RUNNING" or _is_starting(record):
        time.sleep(FOLLOW_S)
    if not record.state.finished and record.phase != "PAUSED":
        raise OutOfReach(f"{sweep} is {record.phase}: no driver is at work", fix="resume() goes on")
    return record


def _is_starting(record: Record) -> bool:
    """Whether a driver has the sweep but has not begun it yet: starting Ray takes a while."""
    return record.phase == "QUEUED" and record.driver == "alive"
