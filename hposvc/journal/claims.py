"""The claims of the sweeps that share a cluster, and the operator's rules for sharing it.

The driver of a sweep writes its row, and no other process does: the row is written only while the
driver has the sweep's lease. What is in it is hposvc/queue's.
"""

import json
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select, true, update
from sqlalchemy.exc import IntegrityError

from hposvc.journal.database import CLAIMS, LEASES, QUEUE_RULES, Store
from hposvc.journal.lease import Lease, holder_of


@dataclass(frozen=True)
class ClaimRow:
    """The last claim that a driver wrote for its sweep."""

    sweep: str
    cluster: str
    claim: Mapping[str, Any]
    share: Mapping[str, Any]  # that the driver computed, and what it waits for
    written: float  # in seconds of the epoch
    live: bool  # whether that driver is still at work


def write(
    lease: Lease, cluster: str, claim: Mapping[str, object], share: Mapping[str, object]
) -> None:
    """Write the row of the lease's sweep, unless another driver has taken the sweep over."""
    mine = LEASES.c.sweep == lease.sweep
    values = {
        "cluster": cluster,
        "driver": lease.driver,
        "claim": json.dumps(claim),
        "share": json.dumps(share),
        "written": time.time(),
    }
    with lease.store.writing() as connection:
        query = select(LEASES.c.driver).where(mine).with_for_update()
        if connection.execute(query).scalar() != lease.driver:
            return
        own = CLAIMS.c.sweep == lease.sweep
        if not connection.execute(update(CLAIMS).where(own).values(values)).rowcount:
            connection.execute(insert(CLAIMS).values(sweep=lease.sweep, **values))


def drop_before(store: Store, written: float) -> None:
    """Delete the rows that nobody has written since a time."""
    with store.writing() as connection:
        connection.execute(delete(CLAIMS).where(CLAIMS.c.written < written))


def find(store: Store, sweep: str) -> ClaimRow | None:
    """Return the row of a sweep; None: it has none."""
    return next(iter(_read(store, CLAIMS.c.sweep == sweep)), None)


def read(store: Store, cluster: str | None = None) -> list[ClaimRow]:
    """Return the rows of a cluster; None: of all clusters."""
    return _read(store, true() if cluster is None else CLAIMS.c.cluster == cluster)


def _read(store: Store, which: ColumnElement[bool]) -> list[ClaimRow]:
    leases = [column for column in LEASES.c if column.name not in ("sweep", "driver")]
    same = (LEASES.c.sweep == CLAIMS.c.sweep) & (LEASES.c.driver == CLAIMS.c.driver)
    joined = CLAIMS.outerjoin(LEASES, same)
    query = select(CLAIMS, *leases).select_from(joined).where(which).order_by(CLAIMS.c.sweep)
    with store.reading() as connection:
        rows = connection.execute(query).all()
    return [
        ClaimRow(
            row.sweep,
            row.cluster,
            json.loads(row.claim),
            json.loads(row.share),
            row.written,
            live=row.host is not None and holder_of(row).state == "alive",
        )
        for row in rows
    ]


def journal_id(store: Store) -> str:
    """Return what tells this journal from all others, wherever it is opened."""
    query = select(QUEUE_RULES.c.journal)
    with store.reading() as connection:
        known = connection.execute(query).scalar()
    if known is not None:
        return str(known)
    with suppress(IntegrityError), store.writing() as connection:  # another process came first
        connection.execute(insert(QUEUE_RULES).values(id=1, journal=uuid.uuid4().hex))
    return journal_id(store)


def publish_rules(store: Store, rules: Mapping[str, object]) -> None:
    """Record the operator's rules, which all drivers follow from then on."""
    journal_id(store)  # makes the row
    with store.writing() as connection:
        connection.execute(update(QUEUE_RULES).values(body=json.dumps(rules)))


def read_rules(store: Store) -> dict[str, Any]:
    """Return the operator's rules; empty: there are none."""
    with store.reading() as connection:
        body = connection.execute(select(QUEUE_RULES.c.body)).scalar()
    return {} if body is None else dict(json.loads(body))
