"""Drive a sweep for a server: in the sweep's own process, which may import the user's code.

The server records a sweep without having seen its code. So its driver checks that first, and ends
a sweep that it has to refuse. All of that is in the journal, not in an exit code: a server that was
started meanwhile knows as much as the one that started the driver.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial

from hposvc import api
from hposvc import spec as specs
from hposvc.driver.driver import Driver
from hposvc.errors import OutOfReach, PlugInFailed, Problem, SpecError, StoreError, fail
from hposvc.events import Event, Finished
from hposvc.journal import operations, submitted_secrets, supervision
from hposvc.journal.home import DRIVER_LOG
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease, holder
from hposvc.journal.supervision import Supervised
from hposvc.server.redacted import redacted_output
from hposvc.state.receipt import RequestReceipt
from hposvc.state.sweep import SweepState
from hposvc.tracking.recorder_process import Recorder
from hposvc.verbs.steering import driver_place
from trainables.contract import bounded

log = logging.getLogger("hposvc")


def drive(sweeps: api.Sweeps, sweep: str, watching: api.Watching, address: str | None) -> None:
    """Drive a sweep that a server supervises until it needs no driver; nothing if none was asked.

    Raises:
        SpecError: the sweep is refused; the journal has the reason.
        Busy: another driver has the sweep.
        OutOfReach: the cluster, or a sink of the sweep, can't be reached.
    """
    asked = supervision.find(sweeps.journal.store, sweep)
    if asked is not None:
        carry_out(sweeps, asked, watching, address)


def carry_out(
    sweeps: api.Sweeps,
    asked: Supervised,
    watching: api.Watching,
    address: str | None,
    locate: Callable[[SweepRow], SweepRow] = lambda row: row,
    check: Callable[[SweepRow], None] = lambda row: None,
    delivered: Mapping[str, str] | None = None,
) -> None:
    """Drive a sweep, and record that it has begun, was refused, or may rest.

    Args:
        locate: returns the sweep's row with the paths of this machine.
        check: raises a SpecError if this machine can't drive it.
        delivered: see `api.drive`.
    """
    store = sweeps.journal.store
    row = sweeps.journal.find(asked.sweep)
    if row is None:  # deleted meanwhile
        supervision.rest(store, asked)
        return
    row = locate(row)
    try:
        spec = specs.thaw(row.spec)
        own_log = sweeps.home.folder(row.id, spec.storage) / "logs" / DRIVER_LOG
        with bounded(own_log), redacted_output(spec.environment.known(os.environ)):
            state = _drive(sweeps, asked, row, watching, address, check, delivered)
    except SpecError as error:
        refuse(sweeps, asked, error)
        with suppress(Exception):  # the error in flight says what is wrong
            Driver(sweeps.home, sweeps.journal, row).end()  # sinks hear of it
        raise
    _conclude(sweeps, asked, row, state)


def _drive(
    sweeps: api.Sweeps,
    asked: Supervised,
    row: SweepRow,
    watching: api.Watching,
    address: str | None,
    check: Callable[[SweepRow], None],
    delivered: Mapping[str, str] | None,
) -> SweepState:
    """End a sweep if that is all it is asked for, or else drive it.

    Raises:
        SpecError: the sweep can't begin, or a plug-in raised, as it would under each driver.
    """
    if asked.ends:
        state = Driver(sweeps.home, sweeps.journal, row).end()
        if state.finished or state.state == "PAUSED":
            _answer_waiting(sweeps, row.id, state)  # before its sinks have all of it
            return state
    os.environ.update(specs.restore(row.spec).environment.env)  # its code may need them at import
    row = api.check_code(sweeps, row, asked.accept_code)
    if sweeps.journal.last(row.id) == 0:
        _claim_store(sweeps, row)
    check(row)
    try:
        with watching(row.id) as watchers:
            begun = [_Begun(sweeps, row.id), *watchers]
            return api.drive(sweeps, row, begun, address, delivered=delivered).state
    except PlugInFailed as error:
        raise SpecError([Problem.of_text(f"{error}")]) from error


class _Begun:
    """A watcher that ends the operations that wait for the sweep to begin."""

    def __init__(self, sweeps: api.Sweeps, sweep: str) -> None:
        self._sweeps, self._sweep, self._waits = sweeps, sweep, True

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """End them on the first turn, when the sweep is in the journal and has a backend."""
        if self._waits:
            self._waits = False
            _answer_waiting(self._sweeps, self._sweep, state)


def _answer_waiting(sweeps: api.Sweeps, sweep: str, state: SweepState) -> None:
    """Record that the operations which wait for a sweep's driver are done."""
    store = sweeps.journal.store
    driver = holder(store, sweep)
    receipt = RequestReceipt(sweep, state.state, driver.state, driver_place(driver))
    operations.end_waiting(store, sweep, asdict(receipt))


def _claim_store(sweeps: api.Sweeps, row: SweepRow) -> None:
    """Claim the place of a new sweep's checkpoints, with the credentials of the sweep.

    Raises:
        SpecError: the store refuses, does not answer, or has the place of another journal.
    """
    try:
        api.claim_store(sweeps, row)
    except StoreError as error:
        raise fail(f"{error}", "storage", fix="mend that and submit the sweep again") from error


def _conclude(sweeps: api.Sweeps, asked: Supervised, row: SweepRow, state: SweepState) -> None:
    """Record that a sweep which is over or paused needs no driver; another one goes on.

    Raises:
        OutOfReach: the sweep is over, and a sink does not have all of it yet.
    """
    if state.finished:
        behind = Recorder(sweeps.home, row.id, state.spec, sweeps.journal).behind
        if behind:
            raise OutOfReach(f"{row.id}: {behind} events are still to be sent to its trackers")
    if state.finished or state.state == "PAUSED":
        _answer_waiting(sweeps, row.id, state)  # first: who dies in between is followed by another
        forget = _forgetting(sweeps, row.id, state.finished)
        supervision.rest(sweeps.journal.store, asked, forget)


def refuse(sweeps: api.Sweeps, asked: Supervised, error: SpecError) -> None:
    """End a sweep that can't begin; one that has begun stays as it is, to be resumed.

    Raises:
        Busy: a driver has the sweep.
    """
    journal, sweep = sweeps.journal, asked.sweep
    row = journal.find(sweep)
    simulated = row is not None and specs.thaw(row.spec).engine.traits.simulated
    lease = Lease(journal.store, sweep)
    lease.acquire()
    try:
        if journal.last(sweep) == 0:
            now = 0.0 if simulated else time.time()
            journal.append(sweep, 0, [Finished(now, "FAILED", f"{error}")])
        errors = [problem.entry() for problem in error.problems]
        operations.end_waiting(journal.store, sweep, errors=errors)  # first, as in `_conclude`
        over = row is not None and api.load(sweeps, sweep).state.finished
        supervision.rest(journal.store, asked, _forgetting(sweeps, sweep, over))
    finally:
        lease.release()


def _forgetting(sweeps: api.Sweeps, sweep: str, over: bool) -> Callable[[], None]:
    """Return a function that deletes the secrets of a sweep that is over.

    It is called where the sweep comes to rest, since a request to go on may bring new ones.
    """
    return partial(submitted_secrets.delete, sweeps.home, sweep) if over else lambda: None
