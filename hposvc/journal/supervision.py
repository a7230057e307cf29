"""Sweeps that are to have a driver: a server starts one for each of them, until it has rested.

A sweep is in the table `supervised` from the request for a driver until a driver has brought it to
its end, to a pause, or has refused it. Each request has a mark of its own, and a driver removes the
row only with the mark that it began with: so no request is lost that comes while a driver ends.
"""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, delete, exists, func, insert, select, update

from hposvc.events import ENDS, MARKS, RENEWALS
from hposvc.journal.database import LEASES, OPERATIONS, REQUESTS, SUPERVISED, SWEEPS, Store
from hposvc.journal.lease import Holder, holder_of


@dataclass(frozen=True)
class Supervised:
    """A sweep that is to have a driver."""

    sweep: str
    asked: str  # the mark of the last request for a driver
    accept_code: bool  # go on although the code has changed
    driver: Holder
    ends: bool  # whether it only waits to be stopped or paused, which needs no slots
    since: float  # when a driver was first asked for, in seconds of the epoch


def ask(connection: Connection, sweep: str, accept_code: bool = False) -> None:
    """Ask for a driver of the sweep, as a part of this transaction.

    A sweep that is in the table keeps its place in the queue.
    """
    mine = SUPERVISED.c.sweep == sweep
    values = {"asked": uuid.uuid4().hex, "accept_code": int(accept_code)}
    if not connection.execute(update(SUPERVISED).where(mine).values(values)).rowcount:
        spec = connection.execute(select(SWEEPS.c.spec).where(SWEEPS.c.id == sweep)).scalar()
        priority = 0 if spec is None else json.loads(spec).get("queue", {}).get("priority", 0)
        row = {"sweep": sweep, "since": time.time(), "priority": priority, **values}
        connection.execute(insert(SUPERVISED).values(row))


def rest(store: Store, supervised: Supervised, along: Callable[[], object] = lambda: None) -> None:
    """Record that the sweep needs no driver any more, unless it was asked for once more.

    Args:
        along: called before the end of the transaction, if it was not.
    """
    mine = (SUPERVISED.c.sweep == supervised.sweep) & (SUPERVISED.c.asked == supervised.asked)
    with store.writing() as connection:
        if connection.execute(delete(SUPERVISED).where(mine)).rowcount:
            along()


def find(store: Store, sweep: str) -> Supervised | None:
    """Return a sweep that is to have a driver; None: nobody has asked, or it has rested."""
    with store.reading() as connection:
        row = connection.execute(_select().where(SUPERVISED.c.sweep == sweep)).one_or_none()
    return None if row is None else _supervised(row)


def supervised(store: Store) -> list[Supervised]:
    """Return the sweeps that are to have a driver: by priority, then as that was asked."""
    priority = func.coalesce(SUPERVISED.c.priority, 0)
    query = _select().order_by(priority.desc(), SUPERVISED.c.since, SUPERVISED.c.sweep)
    with store.reading() as connection:
        return [_supervised(row) for row in connection.execute(query)]


def _select() -> Select[Any]:
    ends = exists().where(
        REQUESTS.c.sweep == SUPERVISED.c.sweep,
        REQUESTS.c.verb.in_(ENDS),
        REQUESTS.c.trial.is_(None),
    )
    waits = (OPERATIONS.c.sweep == SUPERVISED.c.sweep) & (OPERATIONS.c.state == "running")
    waits &= OPERATIONS.c.server.is_(None)  # for the sweep's driver
    marks = exists().where(waits, OPERATIONS.c.verb.in_(MARKS))
    others = exists().where(waits, OPERATIONS.c.verb.not_in(MARKS)) | exists().where(
        REQUESTS.c.sweep == SUPERVISED.c.sweep, REQUESTS.c.verb.in_(RENEWALS)
    )
    asked_to_end = ends | (marks & ~others)
    leases = [column for column in LEASES.c if column.name != "sweep"]
    joined = SUPERVISED.outerjoin(LEASES, LEASES.c.sweep == SUPERVISED.c.sweep)
    return select(SUPERVISED, *leases, asked_to_end.label("ends")).select_from(joined)


def _supervised(row: Any) -> Supervised:
    driver = Holder("none") if row.driver is None else holder_of(row)
    accept = bool(row.accept_code)
    return Supervised(row.sweep, row.asked, accept, driver, bool(row.ends), row.since)
