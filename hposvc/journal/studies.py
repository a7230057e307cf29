"""The log of what Optuna wrote into its studies, of all studies of a home in one order."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from hposvc.journal.database import STUDY_APPENDS, STUDY_LOG, Store

FETCHED = 16  # records that are fetched at once for a page, as each may be large


class KeyTaken(Exception):
    """A writer used the key of an earlier request for other records."""


@dataclass(frozen=True)
class StudyRequest:
    """A request to append records; however often it comes, they are written once."""

    by: str  # the writer
    key: str  # tells the request from all others of the writer


class StudyLog:
    """The log; its records are Optuna's own, which only Optuna reads.

    Any number of processes write to it. Numbers have no gaps, and a record can be read once all
    earlier ones can, so whoever has read up to a number misses nothing.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, since: int) -> list[dict[str, Any]]:
        """Return all records from number `since` on; the first one has number 0."""
        query = select(STUDY_LOG.c.body).where(STUDY_LOG.c.seq >= since).order_by(STUDY_LOG.c.seq)
        with self._store.reading() as connection:
            return [json.loads(body) for body in connection.execute(query).scalars()]

    def page(self, since: int, limit: int, size: int) -> tuple[list[str], bool]:
        """Return records from number `since` on as JSON texts, and whether there are more.

        Args:
            limit: so many records at most.
            size: so many characters at most, unless the first record alone has more.
        """
        query = select(STUDY_LOG.c.body).where(STUDY_LOG.c.seq >= since).order_by(STUDY_LOG.c.seq)
        gradually = query.limit(limit + 1).execution_options(yield_per=FETCHED)
        bodies: list[str] = []
        with self._store.reading() as connection:
            for body in connection.execute(gradually).scalars():
                size -= len(body)
                if len(bodies) == limit or (bodies and size < 0):
                    return bodies, True
                bodies.append(body)
        return bodies, False

    def append(
        self, records: Sequence[Mapping[str, Any]], request: StudyRequest | None = None
    ) -> int:
        """Write records, all or none; they are durable when this returns the first one's number.

        Args:
            request: one that was carried out before is not carried out again; None: it comes once.

        Raises:
            KeyTaken: the request came before with other records.
        """
        bodies = [json.dumps(record) for record in records]
        while (first := self._append(bodies, request)) is None:
            pass
        return first

    def _append(self, bodies: Sequence[str], request: StudyRequest | None) -> int | None:
        """Return None if another process took the numbers, or the request; on Postgres it can."""
        try:
            with self._store.writing() as connection:
                earlier = None if request is None else _find(connection, bodies, request)
                if earlier is not None:
                    return earlier
                last = connection.execute(select(func.max(STUDY_LOG.c.seq))).scalar()
                first: int = 0 if last is None else last + 1
                rows = [{"seq": seq, "body": body} for seq, body in enumerate(bodies, first)]
                connection.execute(insert(STUDY_LOG), rows)
                if request is not None:
                    made = {"first": first, "count": len(bodies), "time": time.time()}
                    connection.execute(insert(STUDY_APPENDS).values(**vars(request), **made))
        except IntegrityError:
            return None
        return first


def _find(connection: Connection, bodies: Sequence[str], request: StudyRequest) -> int | None:
    """Return the number of the first record that a request wrote; None: it has not come yet.

    Raises:
        KeyTaken: it wrote other records.
    """
    made = STUDY_APPENDS.c
    row = connection.execute(
        select(made.first, made.count).where(made.by == request.by, made.key == request.key)
    ).one_or_none()
    if row is None:
        return None
    first: int = row.first
    written = select(STUDY_LOG.c.body).where(STUDY_LOG.c.seq.between(first, first + row[1] - 1))
    if [*connection.execute(written.order_by(STUDY_LOG.c.seq)).scalars()] != [*bodies]:
        raise KeyTaken(request.key)
    return first
