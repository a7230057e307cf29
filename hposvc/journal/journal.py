"""The journal: the events of each sweep, in order, durable before anything acts on them.

The key (sweep, seq) is unique, so if two drivers write to a sweep, the second is refused. Other
tables hold users' requests (`requests`), MLflow's runs (`runs`), and the progress of copying events
to each sink (`sink_cursors`). Which driver is at work is recorded in lease.py.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from hposvc.errors import Fenced, StoreError
from hposvc.events import NOTHING, VERSION, Event, Finished, Requested, Verb, from_json, to_json
from hposvc.journal.compression import KIND as PACKED
from hposvc.journal.compression import MIN_EVENTS, CompressedEvents, Damaged, Row, pack, unpack
from hposvc.journal.database import CURSORS, EVENTS, LEASES, REQUESTS, RUNS, SWEEPS, Store
from hposvc.journal.lease import Lease, find_holder

Due = Literal["now", "later", "void"]
PAGE = 1000  # rows read at a time


@dataclass(frozen=True)
class SweepRow:
    """A sweep as it was submitted."""

    id: str
    name: str
    project: str
    created: float
    spec: Mapping[str, Any]
    code: Mapping[str, Any]
    # The SweepSpec that `spec` was made from; None: the row was read from the journal.
    parsed: object = field(default=None, compare=False, repr=False)


class Journal:
    """All sweeps of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self, sweep: SweepRow) -> bool:
        """Record a new sweep; return False if its id is taken."""
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
        """Return all sweeps, newest first."""
        query = select(SWEEPS).order_by(SWEEPS.c.created.desc(), SWEEPS.c.id.desc())
        with self.store.reading() as connection:
            return [_sweep_row(row) for row in connection.execute(query)]

    def find(self, sweep: str) -> SweepRow | None:
        """Return the sweep with exactly this id; None: there is none."""
        with self.store.reading() as connection:
            row = connection.execute(select(SWEEPS).where(SWEEPS.c.id == sweep)).one_or_none()
        return None if row is None else _sweep_row(row)

    def listed(self, sweep: str) -> dict[str, Any]:
        """Return what `record_listed` stored; empty: nothing yet."""
        query = select(SWEEPS.c.listed).where(SWEEPS.c.id == sweep)
        with self.store.reading() as connection:
            listed: dict[str, Any] = json.loads(connection.execute(query).scalar() or "{}")
        return listed

    def record_listed(self, sweep: str, listed: Mapping[str, Any]) -> None:
        """Store a summary of a sweep's events, so that `ls` need not read them again."""
        mine = update(SWEEPS).where(SWEEPS.c.id == sweep)
        with self.store.writing() as connection:
            connection.execute(mine.values(listed=json.dumps(listed)))

    def remove(self, sweep: str) -> None:
        """Delete a sweep and all its events, requests, leases and runs."""
        with self.store.writing() as connection:
            for table in (EVENTS, REQUESTS, LEASES, RUNS, CURSORS):
                connection.execute(delete(table).where(table.c.sweep == sweep))
            connection.execute(delete(SWEEPS).where(SWEEPS.c.id == sweep))

    def append(
        self, sweep: str, after: int, events: Sequence[Event], taken: Sequence[int] = ()
    ) -> int:
        """Write events behind number `after` in one transaction, and return the new last number.

        May be repeated: a store may commit the events and go away before it says so.

        Args:
            taken: ids of requests that are among the events, or void; they are deleted as well.

        Raises:
            Fenced: another driver wrote events there. Nothing is written.
        """
        rows = [
            Row(seq, event.kind, event.time, to_json(event))
            for seq, event in enumerate(events, after + 1)
        ]
        if not rows and not taken:
            return after
        last = after + len(rows)
        try:
            with self.store.writing() as connection:
                if rows:
                    connection.execute(insert(EVENTS), _event_values(sweep, rows))
                    # The key does not detect the number of an event that is in a pack.
                    if connection.execute(_select_last(sweep)).scalar() != last:
                        raise _fenced(sweep, after)
                connection.execute(delete(REQUESTS).where(REQUESTS.c.id.in_(taken)))
        except IntegrityError as error:
            if self.last(sweep) != last or self._page(sweep, after, last, len(rows)) != rows:
                raise _fenced(sweep, after) from error
        return last

    def read(self, sweep: str, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the number and the event, in order, of all events behind number `after`.

        Raises:
            StoreError: packed events are damaged.
        """
        for row in self._rows(sweep, after):
            try:
                unpacked = unpack(row) if row.kind == PACKED else (row,)
            except Damaged as error:
                raise StoreError(f"journal {self.store}: {sweep}: {error}") from error
            for seq, kind, at, body in unpacked:
                if seq > after:  # a pack may hold earlier events too
                    after = seq
                    yield seq, from_json(kind, at, body)

    def last(self, sweep: str) -> int:
        """Return the number of the last event; 0 before the first."""
        with self.store.reading() as connection:
            return connection.execute(_select_last(sweep)).scalar() or 0

    def pack(self, sweep: str) -> CompressedEvents | None:
        """Return the packed events of an ended sweep, for `replace`.

        Returns:
            None: the sweep has not ended, or is packed already.

        Raises:
            Damaged: the events can't be packed without a loss.
        """
        rows = [row for row in self._rows(sweep, 0) if row.kind != PACKED]
        ended = len(rows) >= MIN_EVENTS and rows[-1].kind == Finished.kind
        return pack(rows) if ended else None

    def replace(self, sweep: str, packs: CompressedEvents) -> None:
        """Replace events by their packs, in one transaction.

        Raises:
            Fenced: a driver wrote to the sweep meanwhile. Nothing is changed.
        """
        last = packs.rows[-1].seq
        unpacked = (EVENTS.c.sweep == sweep) & (EVENTS.c.kind != PACKED) & (EVENTS.c.seq <= last)
        with self.store.writing() as connection:
            now = connection.execute(_select_last(sweep)).scalar()
            deleted = connection.execute(delete(EVENTS).where(unpacked)).rowcount
            if (now, deleted) != (last, packs.events):
                raise _fenced(sweep, last)
            connection.execute(insert(EVENTS), _event_values(sweep, packs.rows))

    def _rows(self, sweep: str, after: int) -> Iterator[Row]:
        """Yield the rows behind number `after` that exist now, with one page in memory at a time.

        No transaction stays open between pages, so a slow reader does not block writers.
        """
        last = self.last(sweep)
        while after < last and (page := self._page(sweep, after, last, PAGE)):
            yield from page
            after = page[-1].seq

    def _page(self, sweep: str, after: int, last: int, limit: int) -> list[Row]:
        columns = (EVENTS.c.seq, EVENTS.c.kind, EVENTS.c.time, EVENTS.c.body)
        query = select(*columns).where(
            EVENTS.c.sweep == sweep, EVENTS.c.seq.between(after + 1, last)
        )
        with self.store.reading() as connection:
            rows = connection.execute(query.order_by(EVENTS.c.seq).limit(limit)).all()
        return [Row(*row) for row in rows]

    def request(
        self,
        sweep: str,
        verb: Verb,
        trial: str | None = None,
        changes: Mapping[str, object] = NOTHING,
        by: str = "",
    ) -> int:
        """Record a request to the sweep's driver (see `Requested`), and return its id.

        A driver alive at this moment will see the request: `release_lease` checks once more.
        """
        limits = json.dumps(dict(changes))
        row = {"sweep": sweep, "time": time.time(), "verb": verb, "trial": trial}
        row |= {"changes": limits, "by": by}
        with self.store.writing() as connection:
            find_holder(connection, sweep)  # keeps the driver from releasing the lease in between
            inserted = insert(REQUESTS).values(row).returning(REQUESTS.c.id)
            return int(connection.execute(inserted).scalar_one())

    def requests(self, sweep: str) -> list[tuple[int, Requested]]:
        """Return the pending requests, as (id, event)."""
        with self.store.reading() as connection:
            return _pending_requests(connection, sweep)

    def release_lease(self, lease: Lease, due: Callable[[Requested], Due]) -> bool:
        """Release a lease unless a request is due now, and return whether it was released.

        Void requests are deleted in the same transaction.
        """
        with self.store.writing() as connection:
            find_holder(connection, lease.sweep)  # keeps requests from coming in between
            dues = [
                (number, due(asked)) for number, asked in _pending_requests(connection, lease.sweep)
            ]
            if any(when == "now" for _, when in dues):
                return False
            void = [number for number, when in dues if when == "void"]
            connection.execute(delete(REQUESTS).where(REQUESTS.c.id.in_(void)))
            lease.release_in(connection)
        return True

    def runs(self, sweep: str) -> dict[str, str]:
        """Return MLflow's run of each trial, the parent's under "", and the id of `experiment`."""
        query = select(RUNS.c.trial, RUNS.c.run).where(RUNS.c.sweep == sweep)
        with self.store.reading() as connection:
            return {row.trial: row.run for row in connection.execute(query)}

    def run(self, sweep: str, trial: str) -> str | None:
        """Return MLflow's run of a trial; None: it has none yet."""
        query = select(RUNS.c.run).where(RUNS.c.sweep == sweep, RUNS.c.trial == trial)
        with self.store.reading() as connection:
            return connection.execute(query).scalar()

    def record_runs(self, sweep: str, runs: Mapping[str, str]) -> None:
        """Store the MLflow run of each trial."""
        rows = [{"sweep": sweep, "trial": trial, "run": run} for trial, run in runs.items()]
        if rows:
            with self.store.writing() as connection:
                names = list(runs)
                connection.execute(
                    delete(RUNS).where(RUNS.c.sweep == sweep, RUNS.c.trial.in_(names))
                )
                connection.execute(insert(RUNS), rows)

    def forget_runs(self, sweep: str, trials: Sequence[str]) -> None:
        """Delete the runs of trials that MLflow no longer has."""
        with self.store.writing() as connection:
            connection.execute(delete(RUNS).where(RUNS.c.sweep == sweep, RUNS.c.trial.in_(trials)))

    def cursor(self, sweep: str, sink: str) -> int:
        """Return the number of the last event that a sink has."""
        with self.store.reading() as connection:
            return connection.execute(_select_cursor(sweep, sink)).scalar() or 0

    def advance(self, sweep: str, sink: str, since: int, seq: int) -> None:
        """Record that a sink has all events up to number `seq`.

        Args:
            since: the cursor as this recorder last read or advanced it.

        Raises:
            Fenced: another recorder, perhaps on another host, has moved the cursor meanwhile.
        """
        mine = _is_cursor(sweep, sink) & (CURSORS.c.seq == since)
        with self.store.writing() as connection:
            if connection.execute(update(CURSORS).where(mine).values(seq=seq)).rowcount == 1:
                return
            current = connection.execute(_select_cursor(sweep, sink)).scalar()
            if current is not None:
                raise Fenced(f"{sweep}: {sink} was sent events up to {current}, not {since}")
            try:
                connection.execute(insert(CURSORS).values(sweep=sweep, sink=sink, seq=seq))
            except IntegrityError as error:  # Postgres lets both come this far
                raise Fenced(f"{sweep}: another recorder began to send to {sink}") from error

    def rewind(self, sweep: str, sink: str, seq: int = 0) -> None:
        """Set the cursor of a sink back, so that events after `seq` are sent again if missing."""
        with self.store.writing() as connection:
            mine = update(CURSORS).where(_is_cursor(sweep, sink))
            connection.execute(mine.values(seq=seq))

    def registered(self, sweep: str) -> str:
        """Return how registering the best trial in MLflow went, for people; empty: not tried."""
        mine = (CURSORS.c.sweep == sweep) & CURSORS.c.registered.is_not(None)
        query = select(CURSORS.c.registered).where(mine)
        with self.store.reading() as connection:
            return connection.execute(query).scalar() or ""

    def record_registered(self, sweep: str, sink: str, text: str) -> None:
        """Store how registering the best trial went; the sink must have a cursor."""
        mine = update(CURSORS).where(_is_cursor(sweep, sink))
        with self.store.writing() as connection:
            connection.execute(mine.values(registered=text))


def _event_values(sweep: str, rows: Sequence[Row]) -> list[dict[str, object]]:
    return [{"sweep": sweep, **row._asdict()} for row in rows]


def _select_last(sweep: str) -> Select[Any]:
    return select(func.max(EVENTS.c.seq)).where(EVENTS.c.sweep == sweep)


def _is_cursor(sweep: str, sink: str) -> ColumnElement[bool]:
    return (CURSORS.c.sweep == sweep) & (CURSORS.c.sink == sink)


def _select_cursor(sweep: str, sink: str) -> Select[Any]:
    return select(CURSORS.c.seq).where(_is_cursor(sweep, sink))


def _fenced(sweep: str, after: int) -> Fenced:
    return Fenced(
        f"{sweep}: another driver wrote event {after + 1}; this one stops here. "
        f"`hposvc status {sweep}` tells how the sweep goes on"
    )


def _pending_requests(connection: Connection, sweep: str) -> list[tuple[int, Requested]]:
    query = select(REQUESTS).where(REQUESTS.c.sweep == sweep).order_by(REQUESTS.c.id)
    return [(row.id, _request_event(row)) for row in connection.execute(query)]


def _request_event(row: Any) -> Requested:
    changes = json.loads(row.changes or "{}")
    return Requested(row.time, row.verb, row.trial, changes, row.by or "")


def _sweep_row(row: Any) -> SweepRow:
    return SweepRow(
        row.id, row.name, row.project, row.created, json.loads(row.spec), json.loads(row.code)
    )
