"""The journal: the events of each sweep, in order, durable before anything acts on them.

The key (sweep, seq) is unique, so if two drivers write to a sweep, the second is refused. Other
tables hold users' requests (`requests`), MLflow's runs (`runs`), and the progress of copying events
to each sink (`sink_cursors`). Which driver is at work is recorded in lease.py.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError

from hposvc.errors import EventsLost, Fenced, StoreError
from hposvc.events import (
    NOTHING,
    Ended,
    Event,
    Finished,
    Reported,
    Requested,
    Verb,
    from_json,
    to_json,
)
from hposvc.journal import feed
from hposvc.journal.compression import KIND as PACKED
from hposvc.journal.compression import MIN_EVENTS, CompressedEvents, Damaged, EventRow, pack, unpack
from hposvc.journal.database import (
    AGENT_MESSAGES,
    CURSORS,
    EVENTS,
    REQUESTS,
    RUNS,
    SWEEP_TABLES,
    SWEEPS,
    Store,
)
from hposvc.journal.lease import Lease, find_holder

Due = Literal["now", "later", "void"]
PAGE = 1000  # rows read at a time
COPY_WITH_THEM = "put back a copy of the database that has them, or hposvc rm the sweep"
ADVANCES = (Reported.kind, Ended.kind, Finished.kind)  # kinds of events by which a sweep gets on


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


class Listed(NamedTuple):
    """A sweep in a list, which is known without reading its events."""

    seq: int  # the number of its last event; 0 before the first
    row: dict[str, Any]  # what `record_listed` stored; empty: nothing yet


class Journal:
    """All sweeps of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(
        self, sweep: SweepRow, along: Callable[[Connection], object] = lambda connection: None
    ) -> bool:
        """Record a new sweep; return False if its id is taken.

        Args:
            along: writes more in the same transaction; what it refuses takes the id too.

        Raises:
            DamagedJournal: the journal takes nothing more.
        """
        self.store.check()
        try:
            with self.store.writing() as connection:
                connection.execute(
                    insert(SWEEPS).values(
                        id=sweep.id,
                        name=sweep.name,
                        project=sweep.project,
                        created=sweep.created,
                        spec=json.dumps(sweep.spec),
                        code=json.dumps(sweep.code),
                    )
                )
                feed.announce(connection, sweep.id, 0, 0)
                along(connection)
        except IntegrityError:
            return False
        return True

    def sweeps(
        self,
        project: str | None = None,
        since: float | None = None,
        before: tuple[float, str] | None = None,
        limit: int | None = None,
    ) -> list[SweepRow]:
        """Return all sweeps, or those of a project, newest first.

        Args:
            since: only sweeps created at this time or later.
            before: only sweeps that come after this one in the list: its creation and id.
            limit: at most so many.
        """
        query = select(SWEEPS).order_by(SWEEPS.c.created.desc(), SWEEPS.c.id.desc()).limit(limit)
        if project is not None:
            query = query.where(SWEEPS.c.project == project)
        if since is not None:
            query = query.where(SWEEPS.c.created >= since)
        if before is not None:
            query = query.where(tuple_(SWEEPS.c.created, SWEEPS.c.id) < tuple_(*before))
        with self.store.reading() as connection:
            return [_sweep_row(row) for row in connection.execute(query)]

    def find(self, sweep: str) -> SweepRow | None:
        """Return the sweep with exactly this id; None: there is none."""
        with self.store.reading() as connection:
            row = connection.execute(select(SWEEPS).where(SWEEPS.c.id == sweep)).one_or_none()
        return None if row is None else _sweep_row(row)

    def listed(self, sweeps: Collection[str]) -> dict[str, Listed]:
        """Return what is known about sweeps without reading their events, by id."""
        last = select(func.max(EVENTS.c.seq)).where(EVENTS.c.sweep == SWEEPS.c.id)
        query = select(SWEEPS.c.id, last.scalar_subquery(), SWEEPS.c.listed)
        with self.store.reading() as connection:
            rows = connection.execute(query.where(SWEEPS.c.id.in_(sweeps)))
            return {name: Listed(seq or 0, json.loads(row or "{}")) for name, seq, row in rows}

    def record_listed(self, sweep: str, listed: Mapping[str, Any]) -> None:
        """Store a summary of a sweep's events, so that `ls` need not read them again."""
        mine = update(SWEEPS).where(SWEEPS.c.id == sweep)
        with self.store.writing() as connection:
            connection.execute(mine.values(listed=json.dumps(listed)))

    def record_code(self, sweep: str, code: Mapping[str, Any]) -> None:
        """Store what identifies the code of a sweep that was recorded before it was looked at."""
        unknown = (SWEEPS.c.id == sweep) & (SWEEPS.c.code == "{}")
        with self.store.writing() as connection:
            connection.execute(update(SWEEPS).where(unknown).values(code=json.dumps(code)))

    def remove(self, sweep: str) -> None:
        """Delete a sweep and all its events, requests, leases and runs."""
        with self.store.writing() as connection:
            for table in SWEEP_TABLES:
                connection.execute(delete(table).where(table.c.sweep == sweep))
            connection.execute(delete(SWEEPS).where(SWEEPS.c.id == sweep))

    def append(
        self,
        sweep: str,
        after: int,
        events: Sequence[Event],
        taken: Sequence[int] = (),
        messages: Sequence[int] = (),
    ) -> int:
        """Write events behind number `after` in one transaction, and return the new last number.

        May be repeated: a store may commit the events and go away before it says so.

        Args:
            taken: ids of requests that are among the events, or void; they are deleted as well.
            messages: ids of agents' messages that are among the events; deleted likewise.

        Raises:
            Fenced: another driver wrote events there. Nothing is written.
            EventsLost: the journal ends before event `after`. Nothing is written.
        """
        rows = [
            EventRow(seq, event.kind, event.time, to_json(event))
            for seq, event in enumerate(events, after + 1)
        ]
        if not rows and not taken and not messages:
            return after
        last = after + len(rows)
        try:
            with self.store.writing() as connection:
                before = connection.execute(_select_last(sweep)).scalar() or 0
                if before < after:
                    raise EventsLost(f"{sweep}: {_lost(before + 1, after)}")
                if rows:
                    connection.execute(insert(EVENTS), _event_values(sweep, rows))
                    # The key does not detect the number of an event that is in a pack.
                    if connection.execute(_select_last(sweep)).scalar() != last:
                        raise _fenced(sweep, after)
                    feed.announce(connection, sweep, after, last)
                connection.execute(delete(REQUESTS).where(REQUESTS.c.id.in_(taken)))
                if messages:
                    connection.execute(
                        delete(AGENT_MESSAGES).where(AGENT_MESSAGES.c.id.in_(messages))
                    )
        except IntegrityError as error:
            if self.last(sweep) != last or self._page(sweep, after, last, len(rows)) != rows:
                raise _fenced(sweep, after) from error
        return last

    def read(self, sweep: str, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the number and the event, in order, of all events behind number `after`.

        Raises:
            StoreError: packed events are damaged.
        """
        for seq, kind, at, body in self.rows(sweep, after):
            yield seq, from_json(kind, at, body)

    def rows(self, sweep: str, after: int = 0, most: int | None = None) -> Iterator[EventRow]:
        """Yield all events behind number `after`, in order, as they are stored.

        Args:
            most: at most so many events; None: all.

        Raises:
            StoreError: packed events are damaged, or events are missing.
        """
        unpacked = self._unpacked(sweep, after, min(PAGE, most or PAGE))
        yield from unpacked if most is None else islice(unpacked, most)

    def _unpacked(self, sweep: str, after: int, page: int) -> Iterator[EventRow]:
        for stored in self._rows(sweep, after, page):
            try:
                unpacked = unpack(stored) if stored.kind == PACKED else (stored,)
            except Damaged as error:
                raise StoreError(f"journal {self.store}: {sweep}: {error}") from error
            for row in unpacked:
                if row.seq > after + 1:
                    hole = Damaged(_lost(after + 1, row.seq - 1))
                    message = f"journal {self.store}: {sweep}: {hole}"
                    raise StoreError(message, COPY_WITH_THEM) from hole
                if row.seq > after:  # a pack may hold earlier events too
                    after = row.seq
                    yield row

    def last(self, sweep: str) -> int:
        """Return the number of the last event; 0 before the first."""
        with self.store.reading() as connection:
            return connection.execute(_select_last(sweep)).scalar() or 0

    def gaps(self) -> Iterator[tuple[str, str]]:
        """Yield each sweep that lacks events before its last one, and which they are, as text."""
        before = func.lag(EVENTS.c.seq, 1, 0).over(
            partition_by=EVENTS.c.sweep, order_by=EVENTS.c.seq
        )
        # A pack has the number of the last of its events.
        numbers = select(EVENTS.c.sweep, before.label("before"), EVENTS.c.seq, EVENTS.c.kind)
        steps = numbers.subquery()
        gap = (steps.c.seq > steps.c.before + 1) & (steps.c.kind != PACKED)
        with self.store.reading() as connection:
            for row in connection.execute(select(steps).where(gap)):
                yield row.sweep, _lost(row.before + 1, row.seq - 1)

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

    def _rows(self, sweep: str, after: int, limit: int = PAGE) -> Iterator[EventRow]:
        """Yield the rows behind number `after` that exist now, with one page in memory at a time.

        No transaction stays open between pages, so a slow reader does not block writers.
        """
        last = self.last(sweep)
        while after < last and (page := self._page(sweep, after, last, limit)):
            yield from page
            after = page[-1].seq

    def _page(self, sweep: str, after: int, last: int, limit: int) -> list[EventRow]:
        columns = (EVENTS.c.seq, EVENTS.c.kind, EVENTS.c.time, EVENTS.c.body)
        query = select(*columns).where(
            EVENTS.c.sweep == sweep, EVENTS.c.seq.between(after + 1, last)
        )
        with self.store.reading() as connection:
            rows = connection.execute(query.order_by(EVENTS.c.seq).limit(limit)).all()
        return [EventRow(*row) for row in rows]

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
        with self.store.writing() as connection:
            find_holder(connection, sweep)  # keeps the driver from releasing the lease in between
            return add_request(connection, sweep, verb, trial, changes, by)

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

    def withdraw(self, sweep: str, verb: Verb) -> None:
        """Delete the pending requests of a verb for the whole sweep."""
        mine = (REQUESTS.c.sweep == sweep) & (REQUESTS.c.verb == verb)
        with self.store.writing() as connection:
            connection.execute(delete(REQUESTS).where(mine, REQUESTS.c.trial.is_(None)))

    def advanced(self, sweep: str, after: int) -> bool:
        """Return whether a trial got on behind event number `after`."""
        mine = (EVENTS.c.sweep == sweep) & (EVENTS.c.seq > after)
        query = select(EVENTS.c.seq).where(mine, EVENTS.c.kind.in_(ADVANCES)).limit(1)
        with self.store.reading() as connection:
            return connection.execute(query).first() is not None

    def runs(self, sweep: str, trials: Collection[str] | None = None) -> dict[str, str]:
        """Return MLflow's run of each trial, the parent's under "", and the id of `experiment`.

        Args:
            trials: only the runs of these; None: all.
        """
        query = select(RUNS.c.trial, RUNS.c.run).where(RUNS.c.sweep == sweep)
        if trials is not None:
            query = query.where(RUNS.c.trial.in_(trials))
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


def _event_values(sweep: str, rows: Sequence[EventRow]) -> list[dict[str, object]]:
    return [{"sweep": sweep, **row._asdict()} for row in rows]


def _select_last(sweep: str) -> Select[Any]:
    return select(func.max(EVENTS.c.seq)).where(EVENTS.c.sweep == sweep)


def _is_cursor(sweep: str, sink: str) -> ColumnElement[bool]:
    return (CURSORS.c.sweep == sweep) & (CURSORS.c.sink == sink)


def _select_cursor(sweep: str, sink: str) -> Select[Any]:
    return select(CURSORS.c.seq).where(_is_cursor(sweep, sink))


def _lost(first: int, last: int) -> str:
    """Say which events are missing, and the usual reason."""
    events = f"event {first}" if first == last else f"events {first} to {last}"
    return f"the journal lost {events} (was an older copy put in its place?)"


def _fenced(sweep: str, after: int) -> Fenced:
    fix = f"this one stops here. `hposvc status {sweep}` tells how the sweep goes on"
    return Fenced(f"{sweep}: another driver wrote event {after + 1}", fix)


def add_request(
    connection: Connection,
    sweep: str,
    verb: Verb,
    trial: str | None,
    changes: Mapping[str, object],
    by: str,
) -> int:
    """Record a request within a transaction that has locked the sweep's lease; return its id."""
    row = {"sweep": sweep, "time": time.time(), "verb": verb, "trial": trial}
    row |= {"changes": json.dumps(dict(changes)), "by": by}
    inserted = insert(REQUESTS).values(row).returning(REQUESTS.c.id)
    return int(connection.execute(inserted).scalar_one())


def _pending_requests(connection: Connection, sweep: str) -> list[tuple[int, Requested]]:
    query = select(REQUESTS).where(REQUESTS.c.sweep == sweep).order_by(REQUESTS.c.id)
    requests = []
    for row in connection.execute(query):
        changes = json.loads(row.changes or "{}")
        request = Requested(row.time, row.verb, row.trial, changes, row.by or "")
        requests.append((row.id, request))
    return requests


def _sweep_row(row: Any) -> SweepRow:
    return SweepRow(
        row.id, row.name, row.project, row.created, json.loads(row.spec), json.loads(row.code)
    )
