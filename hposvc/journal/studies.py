"""The log of what Optuna wrote into its studies, of all studies of a home in one order."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from hposvc.journal.database import STUDY_LOG, Store


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

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records, all or none; they are durable when this returns."""
        bodies = [json.dumps(record) for record in records]
        while not self._append(bodies):
            pass

    def _append(self, bodies: Sequence[str]) -> bool:
        """Return False if another process took the numbers; on Postgres it can."""
        try:
            with self._store.writing() as connection:
                last = connection.execute(select(func.max(STUDY_LOG.c.seq))).scalar()
                first = 0 if last is None else last + 1
                rows = [{"seq": seq, "body": body} for seq, body in enumerate(bodies, first)]
                connection.execute(insert(STUDY_LOG), rows)
        except IntegrityError:
            return False
        return True
