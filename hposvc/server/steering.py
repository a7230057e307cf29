"""Steer sweeps for callers of the server, which never drives a sweep in its own process.

A request is recorded for the sweep's driver as on the command line. Where there is none, but the
request needs one, the supervisor is to start one.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from hposvc.events import ENDS, MARKS, RENEWALS, Verb
from hposvc.journal import operations, supervision
from hposvc.journal.journal import SweepRow, add_request
from hposvc.journal.lease import busy, find_holder, holder
from hposvc.journal.operations import Operation
from hposvc.server import sweep_secrets
from hposvc.server.service import Service
from hposvc.verbs import steering as requests

RESUME = "resume"
POLL_S = 0.1
PATIENCE_S = 2.0  # how long the caller of a request without slots waits for it to be carried out


def steer(
    service: Service,
    by: str,
    row: SweepRow,
    verb: Verb,
    trial: str | None,
    changes: Mapping[str, object],
    sent: Mapping[str, str],
) -> Operation:
    """Request a verb of a sweep, or of one of its trials, and have it carried out.

    The request, its operation and that a driver is needed are recorded in one transaction, so the
    death of the server loses none of them. The operation's result is a RequestReceipt; while it
    is running, a driver is to be started that carries out the request.

    Args:
        by: the caller's name.
        sent: values of secrets that came with the request.

    Raises:
        NotFound: there is no such trial, or it did not fail.
        SpecError: a changed key is not a limit, a value does not fit, or a secret has none.
    """
    sweeps, store = service.sweeps, service.sweeps.journal.store
    secrets: Mapping[str, str] = {}
    renews = verb in RENEWALS
    ends = trial is None and verb in ENDS
    with service.folded.open(row) as folded:
        record = folded.record()
        if renews:
            secrets = sweep_secrets.renewed(sweeps, by, record, sent, True)
        receipt, due = requests.check(sweeps, record, verb, trial, changes)
        if verb in MARKS:  # of an interrupted sweep, its next driver carries it out
            rests = record.state.finished or record.state.state == "PAUSED"
            ends = rests or record.driver == "alive"  # which may have ended in between
    with (
        sweep_secrets.kept(sweeps.home, row.id, secrets) as adopt,
        store.writing() as connection,
    ):
        operation = operations.begin(connection, verb, row.id, trial, by)
        # A driver that is alive here can't release its lease before it has seen the request.
        driver = find_holder(connection, row.id)
        waits = due and ends and driver.state != "alive"
        if due:
            add_request(connection, row.id, verb, trial, changes, by)
            place = requests.driver_place(driver)
            pending = verb in MARKS and driver.state != "alive" and not ends
            receipt = replace(receipt, driver=driver.state, place=place, pending=pending)
        if waits or renews:
            supervision.ask(connection, row.id)
            adopt()
        if not waits:
            operations.end_in(connection, operation, asdict(receipt))
    service.wake()
    return _await_end(service, operation) if waits else operations.find(store, operation)


def resume(
    service: Service,
    by: str,
    row: SweepRow,
    accept_code: bool,
    sent: Mapping[str, str],
) -> str:
    """Have a driver go on with a sweep, and return the operation, which waits for the driver.

    A request to pause that no driver has carried out yet is void.

    Args:
        sent: values of secrets that came with the request.

    Raises:
        Busy: a driver is at work on it.
        SpecError: a secret has no value.
    """
    journal = service.sweeps.journal
    driver = holder(journal.store, row.id)
    if driver.state == "alive":
        host, _, pid = driver.place.rpartition(":")
        raise busy(row.id, f"process {pid} on {host}", driver.work)
    with service.folded.open(row) as folded:
        secrets = sweep_secrets.renewed(service.sweeps, by, folded.record(), sent, False)
    journal.withdraw(row.id, "pause")
    with (
        sweep_secrets.kept(service.sweeps.home, row.id, secrets) as adopt,
        journal.store.writing() as connection,
    ):
        operation = operations.begin(connection, RESUME, row.id, None, by)
        supervision.ask(connection, row.id, accept_code)
        adopt()
    service.wake()
    return operation


def _await_end(service: Service, operation: str) -> Operation:
    """Return an operation when it has ended, or after a while as it is."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        row = operations.find(service.sweeps.journal.store, operation)
        if row.state != "running" or time.monotonic() > deadline or service.ends.wait(POLL_S):
            return row
