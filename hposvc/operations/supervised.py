"""Drive a sweep for a server: in the sweep's own process, which may import the user's code.

The server records a sweep without having seen its code. So its driver checks that first, and ends
a sweep that it has to refuse. All of that is in the journal, not in an exit code: a server that was
started meanwhile knows as much as the one that started the driver.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial

from hposvc import api
from hposvc import spec as specs
from hposvc.driver.driver import Driver
from hposvc.driver.loop import Watcher
from hposvc.errors import OutOfReach, PlugInFailed, Problem, SpecError, StoreError, fail
from hposvc.events import Event, Finished
from hposvc.journal import operations, submitted_secrets, supervision
from hposvc.journal.home import DRIVER_LOG
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease, holder
from hposvc.journal.supervision import Supervised
from hposvc.operations.redacted import redacted_output
from hposvc.operations.requests import RequestReceipt, driver_place
from hposvc.spec import fingerprint
from hposvc.state.sweep import SweepState
from hposvc.tracking.recorder_process import Recorder
from trainables.runtime.output import bounded

log = logging.getLogger("hposvc")

Drive = Callable[[SweepRow, Sequence[Watcher]], SweepState]


def drive(sweeps: api.Sweeps, sweep: str, watching: api.Watching, address: str | None) -> None:
    """Drive a sweep that a server supervises until it needs no driver; nothing if none was asked.

    Raises:
        SpecError: the sweep is refused; the journal has the reason.
        Busy: another driver has the sweep.
        OutOfReach: the cluster, or a sink of the sweep, can't be reached.
    """
    asked = supervision.find(sweeps.journal.store, sweep)
    if asked is None:
        return

    def run(row: SweepRow, watchers: Sequence[Watcher]) -> SweepState:
        return Driver(sweeps.home, sweeps.journal, row, address, watchers).drive()

    carry_out(sweeps, asked, watching, lambda row: row, run)


def carry_out(
    sweeps: api.Sweeps,
    asked: Supervised,
    watching: api.Watching,
    locate: Callable[[SweepRow], SweepRow],
    run: Drive,
) -> None:
    """Drive a sweep by `run`, and record that it has begun, was refused, or may rest.

    Args:
        locate: returns the sweep's row with the paths of this machine.
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
            if asked.ends:
                state = Driver(sweeps.home, sweeps.journal, row).end()
                if state.finished or state.state == "PAUSED":
                    _answer_waiting(sweeps, row.id, state)  # before its sinks have all of it
                    _conclude(sweeps, asked, row, state)
                    return
            _check_code(sweeps, row, asked.accept_code)
            if sweeps.journal.last(row.id) == 0:
                _claim_store(sweeps, row)
            with watching(row.id) as watchers:
                state = _run(row, [_Begun(sweeps, row.id), *watchers], run)
    except SpecError as error:
        refuse(sweeps, asked, error)
        with suppress(Exception):  # the error in flight says what is wrong
            Driver(sweeps.home, sweeps.journal, row).end()  # sinks hear of it
        raise
    _conclude(sweeps, asked, row, state)


def _run(row: SweepRow, watchers: Sequence[Watcher], run: Drive) -> SweepState:
    """Drive a sweep; a plug-in that fails would do so under each further driver.

    Raises:
        SpecError: a plug-in of the sweep raised, or broke the rules.
    """
    try:
        return run(row, watchers)
    except PlugInFailed as error:
        raise SpecError([Problem.of_text(f"{error}")]) from error


class _Begun:
    """A watcher that ends the operations that wait for the sweep to begin."""

    def __init__(self, sweeps: api.Sweeps, sweep: str) -> None:
        self._sweeps, self._sweep, self._waits = sweeps, sweep, True

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
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


def _check_code(sweeps: api.Sweeps, row: SweepRow, accept_code: bool) -> None:
    """Check the user's code as `run` does; that of a sweep with trials must be as before.

    Raises:
        SpecError: the code can't be imported, does not fit, or has changed.
    """
    spec = specs.restore(row.spec)
    os.environ.update(spec.environment.env)  # the code may need them at import
    if not row.code:
        checked = api.validate(specs.dump(spec), {})
        sweeps.journal.record_code(row.id, fingerprint.describe(checked))
    elif not accept_code and not api.load(sweeps, row.id).state.finished:
        fingerprint.check_unchanged(row.id, row.spec, row.code)


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
