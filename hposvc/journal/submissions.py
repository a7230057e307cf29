"""Submissions: the sweeps that came to the server, who submitted them, and as what.

A sweep has one row, written in one transaction with the sweep itself. The same request again finds
that row by the sweep's id, or by its caller's Idempotency-Key, and compares the digests.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from hposvc.journal import operations, supervision
from hposvc.journal.database import SUBMISSION_KEYS, SUBMISSIONS, Store
from hposvc.journal.journal import Journal, SweepRow


@dataclass(frozen=True)
class Submission:
    """A sweep that came to the server."""

    sweep: str
    by: str  # name of the caller
    digest: str  # SHA-256 of the request
    archive: str | None  # SHA-256 of its files; None: it came without files
    time: float
    operation: str


def create(
    journal: Journal,
    row: SweepRow,
    by: str,
    digest: str,
    archive: str | None,
    key: str | None = None,
    along: Callable[[], object] = lambda: None,
    verb: str = operations.SUBMIT,
) -> Submission | None:
    """Record a new sweep, with its operation and the request for a driver, in one transaction.

    Args:
        key: the request's Idempotency-Key.
        along: called before the end of the transaction, once the id is known to be free.
        verb: of the operation.

    Returns:
        None: the sweep's id, or the caller's key, is taken. Nothing is written.
    """
    created: list[Submission] = []

    def write(connection: Connection) -> None:
        operation = operations.begin(connection, verb, row.id, None, by)
        submission = Submission(row.id, by, digest, archive, time.time(), operation)
        connection.execute(insert(SUBMISSIONS).values(vars(submission)))
        if key is not None:
            values = {"by": by, "key": key, "digest": digest, "sweep": row.id}
            connection.execute(insert(SUBMISSION_KEYS).values(values))
        supervision.ask(connection, row.id)
        along()
        created.append(submission)

    return created[-1] if journal.create(row, write) else None


def find(store: Store, sweep: str) -> Submission | None:
    """Return a sweep's submission, by its full id; None: it did not come to the server."""
    query = select(SUBMISSIONS).where(SUBMISSIONS.c.sweep == sweep)
    with store.reading() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else _submission(row)


def find_by_key(store: Store, by: str, key: str) -> tuple[Submission, str] | None:
    """Return what a caller submitted with this Idempotency-Key, and the digest of that request."""
    query = select(SUBMISSIONS, SUBMISSION_KEYS.c.digest.label("asked")).join(
        SUBMISSION_KEYS, SUBMISSION_KEYS.c.sweep == SUBMISSIONS.c.sweep
    )
    mine = (SUBMISSION_KEYS.c.by == by) & (SUBMISSION_KEYS.c.key == key)
    with store.reading() as connection:
        row = connection.execute(query.where(mine)).one_or_none()
    return None if row is None else (_submission(row), row.asked)


def owners(store: Store, sweeps: Iterable[str] | None = None) -> dict[str, str]:
    """Return who submitted each sweep, by the sweeps' ids.

    Args:
        sweeps: None: all.
    """
    query = select(SUBMISSIONS.c.sweep, SUBMISSIONS.c.by)
    if sweeps is not None:
        query = query.where(SUBMISSIONS.c.sweep.in_(list(sweeps)))
    with store.reading() as connection:
        return {row.sweep: row.by for row in connection.execute(query)}


def submitted_by(store: Store, owner: str) -> set[str]:
    """Return the ids of the sweeps that somebody submitted."""
    query = select(SUBMISSIONS.c.sweep).where(SUBMISSIONS.c.by == owner)
    with store.reading() as connection:
        return set(connection.execute(query).scalars())


def archives(store: Store) -> set[str]:
    """Return the SHA-256 of all files that sweeps need."""
    query = select(SUBMISSIONS.c.archive).where(SUBMISSIONS.c.archive.is_not(None))
    with store.reading() as connection:
        return {row.archive for row in connection.execute(query)}


def _submission(row: Row[Any]) -> Submission:
    return Submission(*row[: len(SUBMISSIONS.columns)])
