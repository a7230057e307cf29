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

from sqlalchemy import Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from hposvc.events import VERSION, Event, Finished, Requested, Verb, from_json, to_json
from hposvc.packed import KIND as PACKED
from hposvc.packed import LEAST, Damaged, Packs, Row, pack, unpack
from hposvc.store import CURSORS, EVENTS, LEASES, REQUESTS, RUNS, SWEEPS, Store, StoreError

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

    def listed(self, sweep: str) -> dict[str, Any]:
        """What `record_listed` kept; empty: nothing."""
        query = select(SWEEPS.c.listed).where(SWEEPS.c.id == sweep)
        with self.store.reading() as connection:
            found: dict[str, Any] = json.loads(connection.execute(query).scalar() or "{}")
        return found

    def record_listed(self, sweep: str, listed: Mapping[str, Any]) -> None:
        """Keep what was worked out of a sweep's events, so that nobody need read them again."""
        mine = update(SWEEPS).where(SWEEPS.c.id == sweep)
        with self.store.writing() as connection:
            connection.execute(mine.values(listed=json.dumps(listed)))

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
        last = after + len(rows)
        try:
            with self.store.writing() as connection:
                if rows:
                    connection.execute(insert(EVENTS), rows)
                    # The key does not tell a number that was packed with others.
                    if connection.execute(_last(sweep)).scalar() != last:
                        raise _fenced(sweep, after)
                connection.execute(delete(REQUESTS).where(REQUESTS.c.id.in_(taken)))
        except IntegrityError as error:
            raise _fenced(sweep, after) from error
        return last

    def read(self, sweep: str, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Number and event, in order, of all events behind number `after`.

        Raises:
            StoreError: events that were packed are damaged.
        """
        for row in self._rows(sweep, after):
            try:
                found = unpack(row) if row.kind == PACKED else (row,)
            except Damaged as error:
                raise StoreError(f"journal {self.store}: {sweep}: {error}") from error
            for seq, kind, at, body in found:
                if seq > after:
                    yield seq, from_json(kind, at, body)

    def last(self, sweep: str) -> int:
        """The number of the last event; 0 before the first."""
        with self.store.reading() as connection:
            return connection.execute(_last(sweep)).scalar() or 0

    def pack(self, sweep: str) -> Packs | None:
        """An ended sweep's events in packs, for `replace`; None: it has not ended, or is packed.

        Raises:
            Damaged: they can't be packed without a loss.
        """
        rows = [row for row in self._rows(sweep, 0) if row.kind != PACKED]
        ended = len(rows) >= LEAST and rows[-1].kind == Finished.kind
        return pack(rows) if ended else None

    def replace(self, sweep: str, packs: Packs) -> None:
        """Let packs take the place of their events, in one transaction.

        Raises:
            Fenced: somebody wrote there meanwhile. Nothing is changed.
        """
        last = packs.rows[-1].seq
        loose = (EVENTS.c.sweep == sweep) & (EVENTS.c.kind != PACKED) & (EVENTS.c.seq <= last)
        rows = [{"sweep": sweep, **row._asdict()} for row in packs.rows]
        with self.store.writing() as connection:
            now = connection.execute(_last(sweep)).scalar()
            gone = connection.execute(delete(EVENTS).where(loose)).rowcount
            if (now, gone) != (last, packs.events):
                raise _fenced(sweep, last)
            connection.execute(insert(EVENTS), rows)

    def _rows(self, sweep: str, after: int) -> list[Row]:
        columns = (EVENTS.c.seq, EVENTS.c.kind, EVENTS.c.time, EVENTS.c.body)
        query = select(*columns).where(EVENTS.c.sweep == sweep, EVENTS.c.seq > after)
        with self.store.reading() as connection:
            found = connection.execute(query.order_by(EVENTS.c.seq)).all()
        return [Row(*row) for row in found]

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

    def registered(self, sweep: str) -> str:
        """What became of the best trial in MLflow's registry, for people; empty: nothing yet."""
        query = select(CURSORS.c.registered).where(CURSORS.c.sweep == sweep)
        with self.store.reading() as connection:
            return connection.execute(query).scalar() or ""

    def record_registered(self, sweep: str, text: str) -> None:
        """Keep what became of it; of a sweep that MLflow was told of."""
        mine = update(CURSORS).where(CURSORS.c.sweep == sweep)
        with self.store.writing() as connection:
            connection.execute(mine.values(registered=text))


def _last(sweep: str) -> Select[Any]:
    return select(func.max(EVENTS.c.seq)).where(EVENTS.c.sweep == sweep)


def _fenced(sweep: str, after: int) -> Fenced:
    return Fenced(
        f"{sweep}: another driver wrote event {after + 1}; this one stops here. "
        f"`hposvc status {sweep}` tells how the sweep goes on"
    )


def _requested(row: Any) -> Requested:
    changes = json.loads(row.changes or "{}")
    return Requested(row.time, row.verb, row.trial, changes, row.by or "")


def _sweep(row: Any) -> SweepRow:
    return SweepRow(
        row.id, row.name, row.project, row.created, json.loads(row.spec), json.loads(row.code)
    )
