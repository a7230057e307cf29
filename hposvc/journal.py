"""The journal: what happened in each sweep, in order, durable before anything acts on it.

The key (sweep, seq) is unique, so of two drivers that write to one sweep the second is refused.
Beside the events stand what people ask for (`requests`) and how far MLflow has been told (`runs`,
`cursors`); which driver is at work is in lease.py.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from hposvc.events import VERSION, Event, Requested, Verb, from_json, to_json
from hposvc.store import CURSORS, EVENTS, LEASES, REQUESTS, RUNS, SWEEPS, Store

NOTHING: Mapping[str, object] = {}


class Fenced(Exception):
    """Another driver wrote to the sweep."""


@dataclass(frozen=True)
class SweepRow:
    """A sweep as it was submitted."""

    id: str
    name: str
    project: str
    created: float
    spec: Mapping[str, Any]
    code: Mapping[str, Any]


class Journal:
    """All sweeps of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self, sweep: SweepRow) -> bool:
        """Record a new sweep; False if its id is taken."""
        try:
            with self.store.writing() as connection:
                connection.execute(
                    insert(SWEEPS).values(
                        id=sweep.id,
                        name=sweep.name,
                        project=sweep.project,
                        created=sweep.created,
                        version=VERSION,
                        spec=json.dumps(sweep.spec),
                        code=json.dumps(sweep.code),
                    )
                )
        except IntegrityError:
            return False
        return True

    def sweeps(self) -> list[SweepRow]:
        """All sweeps, newest first."""
        query = select(SWEEPS).order_by(SWEEPS.c.created.desc(), SWEEPS.c.id.desc())
        with self.store.reading() as connection:
            return [_sweep(row) for row in connection.execute(query)]

    def find(self, sweep: str) -> SweepRow | None:
        """One sweep by its whole id."""
        with self.store.reading() as connection:
            row = connection.execute(select(SWEEPS).where(SWEEPS.c.id == sweep)).one_or_none()
        return None if row is None else _sweep(row)

    def remove(self, sweep: str) -> None:
        """Forget a sweep and all that happened in it."""
        with self.store.writing() as connection:
            for table in (EVENTS, REQUESTS, LEASES, RUNS, CURSORS):
                connection.execute(delete(table).where(table.c.sweep == sweep))
            connection.execute(delete(SWEEPS).where(SWEEPS.c.id == sweep))

    def append(
        self, sweep: str, after: int, events: Sequence[Event], taken: Sequence[int] = ()
    ) -> int:
        """Write events behind number `after` in one transaction; the new last number.

        Args:
            taken: requests that are among the events, or void; they are forgotten with it.

        Raises:
            Fenced: somebody else wrote there. Nothing is written.
        """
        rows = [
            {
                "sweep": sweep,
                "seq": seq,
                "kind": each.kind,
                "time": each.time,
                "body": to_json(each),
            }
            for seq, each in enumerate(events, after + 1)
        ]
        if not rows and not taken:
            return after
        try:
            with self.store.writing() as connection:
                if rows:
                    connection.execute(insert(EVENTS), rows)
                connection.execute(delete(REQUESTS).where(REQUESTS.c.id.in_(taken)))
        except IntegrityError as error:
            raise Fenced(
                f"{sweep}: another driver wrote event {after + 1}; this one stops here. "
                f"`hposvc status {sweep}` tells how the sweep goes on"
            ) from error
        return after + len(rows)

    def read(self, sweep: str, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Number and event, in order, of all events behind number `after`."""
        query = select(EVENTS).where(EVENTS.c.sweep == sweep, EVENTS.c.seq > after)
        with self.store.reading() as connection:
            rows = connection.execute(query.order_by(EVENTS.c.seq)).all()
        for row in rows:
            yield row.seq, from_json(row.kind, row.time, row.body)

    def last(self, sweep: str) -> int:
        """The number of the last event; 0 before the first."""
        query = select(func.max(EVENTS.c.seq)).where(EVENTS.c.sweep == sweep)
        with self.store.reading() as connection:
            return connection.execute(query).scalar() or 0

    def request(
        self,
        sweep: str,
        verb: Verb,
        trial: str | None = None,
        changes: Mapping[str, object] = NOTHING,
        by: str = "",
    ) -> None:
        """Ask the sweep's driver for something; what the words mean is told by `Requested`."""
        told = json.dumps(dict(changes))
        row = {"sweep": sweep, "time": time.time(), "verb": verb, "trial": trial}
        row |= {"changes": told, "by": by}
        with self.store.writing() as connection:
            connection.execute(insert(REQUESTS).values(row))

    def requests(self, sweep: str) -> list[tuple[int, Requested]]:
        """What is asked for and not yet taken: (id, event)."""
        query = select(REQUESTS).where(REQUESTS.c.sweep == sweep).order_by(REQUESTS.c.id)
        with self.store.reading() as connection:
            rows = connection.execute(query).all()
        return [(row.id, _requested(row)) for row in rows]

    def runs(self, sweep: str) -> dict[str, str]:
        """MLflow's run of each trial; the parent's under the empty name, and `experiment`'s id."""
        query = select(RUNS.c.trial, RUNS.c.run).where(RUNS.c.sweep == sweep)
        with self.store.reading() as connection:
            return {row.trial: row.run for row in connection.execute(query)}

    def run(self, sweep: str, trial: str) -> str | None:
        """MLflow's run of one trial, if it has one yet."""
        query = select(RUNS.c.run).where(RUNS.c.sweep == sweep, RUNS.c.trial == trial)
        with self.store.reading() as connection:
            return connection.execute(query).scalar()

    def record_runs(self, sweep: str, runs: Mapping[str, str]) -> None:
        """Keep which MLflow run is which trial's."""
        rows = [{"sweep": sweep, "trial": trial, "run": run} for trial, run in runs.items()]
        if rows:
            with self.store.writing() as connection:
                names = list(runs)
                connection.execute(
                    delete(RUNS).where(RUNS.c.sweep == sweep, RUNS.c.trial.in_(names))
                )
                connection.execute(insert(RUNS), rows)

    def forget_runs(self, sweep: str, trials: Sequence[str]) -> None:
        """Drop runs that MLflow does not have any more."""
        with self.store.writing() as connection:
            connection.execute(delete(RUNS).where(RUNS.c.sweep == sweep, RUNS.c.trial.in_(trials)))

    def cursor(self, sweep: str) -> int:
        """How far MLflow has been told."""
        query = select(CURSORS.c.seq).where(CURSORS.c.sweep == sweep)
        with self.store.reading() as connection:
            return connection.execute(query).scalar() or 0

    def advance(self, sweep: str, seq: int) -> None:
        """MLflow has all events up to this one."""
        with self.store.writing() as connection:
            moved = connection.execute(
                update(CURSORS).where(CURSORS.c.sweep == sweep).values(seq=seq)
            )
            if moved.rowcount == 0:
                connection.execute(insert(CURSORS).values(sweep=sweep, seq=seq))


def _requested(row: Any) -> Requested:
    changes = json.loads(row.changes or "{}")
    return Requested(row.time, row.verb, row.trial, changes, row.by or "")


def _sweep(row: Any) -> SweepRow:
    return SweepRow(
        row.id, row.name, row.project, row.created, json.loads(row.spec), json.loads(row.code)
    )
