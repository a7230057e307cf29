"""Operations: what was asked of the server, by whom, and what became of it.

They outlive the sweeps that they changed, as the record of who changed what.
"""

import json
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import psutil
from sqlalchemy import Connection, Row, insert, select, update

from hposvc.errors import NotFound, entry
from hposvc.journal.database import OPERATIONS, Store
from hposvc.journal.lease import machine_id, process_start

State = Literal["running", "done", "failed"]
SHOWN = 1000  # operations in a list
SUBMIT = "submit"  # the verb of operations that end with a sweep's driver
ENDED = "the server ended before it was done; ask again"


@dataclass(frozen=True)
class Operation:
    """An operation, as recorded at one moment."""

    id: str
    verb: str
    sweep: str | None
    trial: str | None
    by: str  # name of the caller
    state: State
    created: float  # seconds of the epoch
    ended: float | None
    result: Mapping[str, Any] | None
    errors: Sequence[Mapping[str, Any]]  # as in the body of an error; empty unless it failed


def begin(
    connection: Connection,
    verb: str,
    sweep: str | None,
    trial: str | None,
    by: str,
    server: str | None = None,
) -> str:
    """Record a new operation within a transaction, and return its id.

    Args:
        server: the process that carries it out, from `this_server`; None: the sweep's driver.
    """
    operation = f"op-{uuid.uuid4().hex[:16]}"
    values = {"verb": verb, "sweep": sweep, "trial": trial, "by": by, "server": server}
    row = {"id": operation, "state": "running", "created": time.time(), **values}
    connection.execute(insert(OPERATIONS).values(row))
    return operation


def end(
    store: Store,
    operation: str,
    result: Mapping[str, Any] | None = None,
    errors: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Record that a running operation is done, or with errors that it failed."""
    with store.writing() as connection:
        end_in(connection, operation, result, errors)


def end_in(
    connection: Connection,
    operation: str,
    result: Mapping[str, Any] | None = None,
    errors: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Record within a transaction that a running operation is done, or has failed."""
    running = (OPERATIONS.c.id == operation) & (OPERATIONS.c.state == "running")
    connection.execute(update(OPERATIONS).where(running).values(_ended(result, errors)))


def end_waiting(
    store: Store,
    sweep: str,
    result: Mapping[str, Any] | None = None,
    errors: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Record that the operations which wait for a sweep's driver are done, or have failed."""
    waiting = (OPERATIONS.c.sweep == sweep) & (OPERATIONS.c.state == "running")
    mine = update(OPERATIONS).where(waiting, OPERATIONS.c.server.is_(None))
    with store.writing() as connection:
        connection.execute(mine.values(_ended(result, errors)))


def find(store: Store, operation: str) -> Operation:
    """Return an operation.

    Raises:
        NotFound: there is no such operation.
    """
    query = select(OPERATIONS).where(OPERATIONS.c.id == operation)
    with store.reading() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        raise no_such(operation)
    return _operation(row)


def no_such(operation: str) -> NotFound:
    """Return the error for an operation that does not exist."""
    return NotFound(f"{operation}: no such operation", "GET /api/v1/operations lists them")


def newest(store: Store, sweep: str | None = None, limit: int = SHOWN) -> list[Operation]:
    """Return the newest operations, of one sweep or of all, newest first."""
    query = select(OPERATIONS).order_by(OPERATIONS.c.created.desc(), OPERATIONS.c.id).limit(limit)
    if sweep is not None:
        query = query.where(OPERATIONS.c.sweep == sweep)
    with store.reading() as connection:
        return [_operation(row) for row in connection.execute(query)]


def end_orphans(store: Store) -> None:
    """Fail the running operations of servers that are dead; those of drivers go on.

    A server on another machine counts as dead: one server at a time serves a journal, and a
    container that starts anew is another machine.
    """
    running = (OPERATIONS.c.state == "running") & OPERATIONS.c.server.is_not(None)
    query = select(OPERATIONS.c.id, OPERATIONS.c.server).where(running)
    with store.reading() as connection:
        orphans = [row.id for row in connection.execute(query) if not _lives(row.server)]
    for operation in orphans:
        end(store, operation, errors=[entry("out_of_reach", ENDED)])


def this_server() -> str:
    """Return what tells this process from all others."""
    pid = os.getpid()
    return f"{socket.gethostname()} {machine_id()} {pid} {process_start(pid)}"


def _lives(server: str) -> bool:
    """Return whether a process of this machine lives, from its `this_server`."""
    pid = int(server.split()[-2])
    try:
        return server == f"{socket.gethostname()} {machine_id()} {pid} {process_start(pid)}"
    except psutil.NoSuchProcess:
        return False


def _ended(
    result: Mapping[str, Any] | None, errors: Sequence[Mapping[str, Any]]
) -> dict[str, object]:
    return {
        "state": "failed" if errors else "done",
        "ended": time.time(),
        "result": None if result is None else json.dumps(dict(result)),
        "errors": json.dumps([dict(error) for error in errors]),
    }


def _operation(row: Row[Any]) -> Operation:
    values = row._asdict()
    del values["server"]
    values["result"] = None if row.result is None else json.loads(row.result)
    return Operation(**{**values, "errors": json.loads(row.errors or "[]")})
