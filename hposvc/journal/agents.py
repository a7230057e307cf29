"""The mailbox of agents: orders that wait for a client or that a client has, and its messages.

Driver, server and clients meet only here, so each of them may die and come back. An order is open,
then leased to one client, then over. A message is written in the same transaction as the change of
its order, and deleted in the transaction that writes its events: it counts exactly once. An order
becomes over once, with its last message.

A lease has no clock: each sign of life raises the order's `beats`, and the driver ends a lease
whose beats do not change, on condition that they still have not.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, cast

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from hposvc.events import BackendEvent, Ended, Failed, Finished, from_json, to_json
from hposvc.journal.compression import KIND as PACKED
from hposvc.journal.database import (
    AGENT_CLIENTS,
    AGENT_MESSAGES,
    AGENT_ORDERS,
    EVENTS,
    Store,
    retry_until_answered,
)
from trainables.contract import Order, Saved

SERVER = ("", "")  # sweep and client of the row in which servers show that they live
PAGE = 1000  # messages read at a time
REMEMBERED = 1000  # orders that are over, so that their clients may tell their end again
# What an agent does after a message. stop: let the order go, and tell its outcome; checkpoint: save
# one, and send the report again with it.
AgentReply = Literal["continue", "stop", "checkpoint"]


@dataclass(frozen=True, kw_only=True)
class AgentOrder(Order):
    """An order as the mailbox has it and agents get it, with what they need to carry it out.

    `first` is `until` + 1 if nothing is left to do but to tell its outcome.
    """

    total: int | None  # the last step of a whole trial
    seed: int
    lease_s: float  # a sign of life is due within this time: any message
    environment: Mapping[str, str]  # variables for rank 0, such as those of MLflow
    metrics: Sequence[str]  # a report that has them all is judged; a step without is only recorded
    copies: bool  # a milestone's report needs a checkpoint, since other trials may go on from there
    folder: str  # of the sweep
    storage: str | None  # URL of the checkpoints; null: they are in the folder

    def to_order(self) -> Order:
        """Return the order as ranks carry it out."""
        return Order(**{each.name: getattr(self, each.name) for each in fields(Order)})


AGENT_ORDER = TypeAdapter(AgentOrder)


class OrderLease(NamedTuple):
    """An order that is not over."""

    client: str | None  # None: it is open
    beats: int


class Wish(NamedTuple):
    """The trials that a client asked for and did not get."""

    wants: int
    looks: int


class Look(NamedTuple):
    """The mailbox of a sweep at one moment, for its driver."""

    messages: Sequence[tuple[int, BackendEvent]]  # with their numbers, oldest first
    orders: Mapping[int, OrderLease]
    wishes: Mapping[str, Wish]
    server: int  # grows while a server lives


@dataclass
class MailboxTurn:
    """The changes that a driver makes in the mailbox at once."""

    opened: list[AgentOrder] = field(default_factory=list)
    # For each order the step up to which milestones are passed, and what it is told.
    answers: dict[int, tuple[int, str | None]] = field(default_factory=dict)
    # Ends of orders that still have this lease; None: any.
    ended: list[tuple[OrderLease | None, Ended | Failed]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)  # that the journal does not know any more


@dataclass(frozen=True)
class AgentMailbox:
    """The driver's side of the mailbox of a sweep; it waits for a store that does not answer."""

    store: Store
    sweep: str

    def look(self, now: float) -> Look:
        """Return what there is for the driver, for whom it happens now."""
        return retry_until_answered(lambda: self._look(now), self.sweep)

    def _look(self, now: float) -> Look:
        mine = AGENT_MESSAGES.c.sweep == self.sweep
        messages = select(AGENT_MESSAGES).where(mine).order_by(AGENT_MESSAGES.c.id).limit(PAGE)
        columns = (AGENT_ORDERS.c.id, AGENT_ORDERS.c.client, AGENT_ORDERS.c.beats)
        orders = select(*columns).where(_of(self.sweep), _GOES_ON)
        wishes = select(AGENT_CLIENTS).where(
            AGENT_CLIENTS.c.sweep.in_([self.sweep, SERVER[0]]), AGENT_CLIENTS.c.wants > 0
        )
        with self.store.reading() as connection:
            # First: a message of an order that is over is seen before or with its end.
            rows = connection.execute(messages).all()
            held = connection.execute(orders).all()
            clients = connection.execute(wishes).all()
        events = []
        for row in rows:
            kind, _, text = row.body.partition(" ")
            events.append((row.id, cast(BackendEvent, from_json(kind, now, text))))
        return Look(
            events,
            {row.id: OrderLease(row.client, row.beats) for row in held},
            {row.client: Wish(row.wants, row.looks) for row in clients if row.sweep},
            next((row.looks for row in clients if not row.sweep), 0),
        )

    def known(self) -> set[int]:
        """Return the orders that the mailbox has, over or not."""
        query = select(AGENT_ORDERS.c.id).where(_of(self.sweep))
        with self.store.reading() as connection:
            return set(connection.execute(query).scalars())

    def write(self, turn: MailboxTurn) -> None:
        """Write a driver's turn in one transaction; safe to repeat."""

        def write() -> None:
            with self.store.writing() as connection:
                self._open(connection, turn.opened)
                self._answer(connection, turn.answers)
                for lease, event in turn.ended:
                    self._end(connection, lease, event)
                if turn.dropped:
                    mine = _of(self.sweep) & AGENT_ORDERS.c.id.in_(turn.dropped)
                    connection.execute(update(AGENT_ORDERS).where(mine).values(state="over"))

        retry_until_answered(write, self.sweep)

    def _answer(
        self, connection: Connection, answers: Mapping[int, tuple[int, str | None]]
    ) -> None:
        for order, (decided, verdict) in answers.items():
            values = {"decided": decided} | ({} if verdict is None else {"told": verdict})
            connection.execute(
                update(AGENT_ORDERS).where(_is(self.sweep, order), _GOES_ON).values(values)
            )

    def _end(self, connection: Connection, lease: OrderLease | None, event: Ended | Failed) -> None:
        mine = _is(self.sweep, event.order) & _GOES_ON
        if lease is not None:
            same = _OPEN if lease.client is None else AGENT_ORDERS.c.client == lease.client
            mine &= same & (AGENT_ORDERS.c.beats == lease.beats)
        _end(connection, mine, self.sweep, event)

    def _open(self, connection: Connection, opened: Sequence[AgentOrder]) -> None:
        if not opened:
            return
        numbers = [work.id for work in opened]
        query = select(AGENT_ORDERS.c.id).where(_of(self.sweep), AGENT_ORDERS.c.id.in_(numbers))
        there = set(connection.execute(query).scalars())  # of a try that was not answered
        rows = [
            {
                **{"sweep": self.sweep, "id": work.id, "trial": work.trial},
                **{"body": AGENT_ORDER.dump_json(work).decode(), "state": "open", "beats": 0},
                **dict.fromkeys(("step", "low", "decided"), work.first - 1),
            }
            for work in opened
            if work.id not in there
        ]
        if rows:
            connection.execute(insert(AGENT_ORDERS), rows)
        old = _of(self.sweep) & _OVER & (AGENT_ORDERS.c.id < min(numbers) - REMEMBERED)
        connection.execute(delete(AGENT_ORDERS).where(old))

    def close(self) -> None:
        """End all leases without a message, because the sweep is over or rests."""

        def end() -> None:
            with self.store.writing() as connection:
                mine = _of(self.sweep) & (_GOES_ON)
                connection.execute(update(AGENT_ORDERS).where(mine).values(state="over"))
                waiting = AGENT_MESSAGES.c.sweep == self.sweep
                connection.execute(delete(AGENT_MESSAGES).where(waiting))

        retry_until_answered(end, self.sweep)


class OrderRow(NamedTuple):
    """An order as its client sees it."""

    id: int
    trial: str
    body: AgentOrder
    state: str
    client: str | None
    since: float | None
    step: int
    low: int
    saved: Saved | None
    decided: int
    told: str | None
    ended: str | None

    @property
    def resumes_after(self) -> int:
        """The step after which a client that begins again goes on."""
        start = self.body.first - 1
        return start if self.saved is None else max(start, self.saved.step)


_COLUMNS = tuple(AGENT_ORDERS.c[name] for name in OrderRow._fields)


def _row(found: Any) -> OrderRow:
    saved = None if found.saved is None else Saved(**json.loads(found.saved))
    return OrderRow(*found)._replace(body=AGENT_ORDER.validate_json(found.body), saved=saved)


def _of(sweep: str) -> ColumnElement[bool]:
    return AGENT_ORDERS.c.sweep == sweep


def _is(sweep: str, order: int) -> ColumnElement[bool]:
    return _of(sweep) & (AGENT_ORDERS.c.id == order)


_OPEN = AGENT_ORDERS.c.state == "open"
_OVER = AGENT_ORDERS.c.state == "over"
_GOES_ON = AGENT_ORDERS.c.state != "over"
_LEASED = AGENT_ORDERS.c.state == "leased"


def _end(
    connection: Connection,
    where: ColumnElement[bool],
    sweep: str,
    event: Ended | Failed,
    outcome: str | None = None,
) -> None:
    """End an order if it meets a condition."""
    ending = update(AGENT_ORDERS).where(where).values(state="over", ended=outcome)
    if connection.execute(ending).rowcount == 1:
        _send(connection, sweep, event)


def _send(connection: Connection, sweep: str, *events: BackendEvent) -> None:
    rows = [
        {"sweep": sweep, "number": event.order, "body": f"{event.kind} {to_json(event)}"}
        for event in events
    ]
    if rows:
        connection.execute(insert(AGENT_MESSAGES), rows)


def is_over(connection: Connection, sweep: str) -> bool:
    """Return whether the sweep has ended, as far as its last event says."""
    query = select(EVENTS.c.kind).where(EVENTS.c.sweep == sweep)
    last = connection.execute(query.order_by(EVENTS.c.seq.desc()).limit(1)).scalar()
    return last in (Finished.kind, PACKED)


def lease(
    connection: Connection, sweep: str, client: str, host: str, n: int
) -> tuple[list[OrderRow], list[OrderRow]]:
    """Give a client open orders until it has `n` in all.

    If there are none, its wish is recorded.

    Returns:
        The orders that it had, of which it may send the steps after the last checkpoint again; and
        the new ones.
    """
    mine = select(*_COLUMNS).where(_of(sweep), _LEASED, AGENT_ORDERS.c.client == client)
    held = [_row(row) for row in connection.execute(mine.order_by(AGENT_ORDERS.c.id).limit(n))]
    for row in held:
        again = update(AGENT_ORDERS).where(_is(sweep, row.id))
        beats = AGENT_ORDERS.c.beats + 1
        connection.execute(again.values(beats=beats, low=row.resumes_after))
    now = time.time()
    free = select(*_COLUMNS).where(_of(sweep), _OPEN).order_by(AGENT_ORDERS.c.id)
    free = free.limit(n - len(held)).with_for_update(skip_locked=True)
    new = [_row(row) for row in connection.execute(free)] if len(held) < n else []
    if new:
        these = _of(sweep) & AGENT_ORDERS.c.id.in_([row.id for row in new])
        values = {"state": "leased", "client": client, "since": now}
        connection.execute(
            update(AGENT_ORDERS).where(these).values(beats=AGENT_ORDERS.c.beats + 1, **values)
        )
    wish(connection, sweep, client, 0 if new else n - len(held), host, now)
    return held, new


def wish(
    connection: Connection, sweep: str, client: str, wants: int, host: str, now: float
) -> None:
    """Record that a client asked, and how many trials it still wants."""
    mine = (AGENT_CLIENTS.c.sweep == sweep) & (AGENT_CLIENTS.c.client == client)
    values = {"wants": wants, "host": host, "seen": now}
    changed = update(AGENT_CLIENTS).where(mine).values(looks=AGENT_CLIENTS.c.looks + 1, **values)
    if connection.execute(changed).rowcount == 0:
        row = {"sweep": sweep, "client": client, "looks": 1, **values}
        connection.execute(insert(AGENT_CLIENTS).values(row))


def show_server(connection: Connection) -> None:
    """Show drivers that a server lives: while none does, no lease runs out."""
    wish(connection, *SERVER, 1, "", time.time())


def find(connection: Connection, sweep: str, client: str, order: int) -> OrderRow | None:
    """Return an order that the client has or had; nothing changes it before the transaction ends.

    None: the client never had it.
    """
    mine = _is(sweep, order) & (AGENT_ORDERS.c.client == client)
    row = connection.execute(select(*_COLUMNS).where(mine).with_for_update()).first()
    return None if row is None else _row(row)


def keep_alive(
    connection: Connection,
    sweep: str,
    row: OrderRow,
    events: Sequence[BackendEvent] = (),
    saved: Saved | None = None,
    **steps: int,
) -> None:
    """Record a sign of life of the client that has an order.

    Args:
        events: for the driver, who dates them.
        saved: the last checkpoint; None: as before.
        steps: new values of `step` and `low`.
    """
    values: dict[str, object] = {**steps, "beats": AGENT_ORDERS.c.beats + 1}
    if saved is not None:
        values["saved"] = json.dumps(vars(saved))
    connection.execute(update(AGENT_ORDERS).where(_is(sweep, row.id)).values(values))
    _send(connection, sweep, *events)


def end(
    connection: Connection, sweep: str, order: int, outcome: str, event: Ended | Failed
) -> None:
    """End an order as the client that has it says."""
    _end(connection, _is(sweep, order), sweep, event, outcome)


class OrderState(NamedTuple):
    """How the orders of a sweep stand, for the requests that wait."""

    orders: Mapping[int, OrderRow]  # that are not over, of those that were looked for
    open: list[int]  # orders that no client has
    over: bool  # the sweep has ended


def state_of(
    connection: Connection, sweep: str, orders: Collection[int] | None = None
) -> OrderState:
    """Return how orders of a sweep stand.

    Args:
        orders: their numbers; None: all that are not over.
    """
    free = select(AGENT_ORDERS.c.id).where(_of(sweep), _OPEN).order_by(AGENT_ORDERS.c.id)
    query = select(*_COLUMNS).where(_of(sweep), _GOES_ON).order_by(AGENT_ORDERS.c.id)
    if orders is not None:
        query = query.where(AGENT_ORDERS.c.id.in_(orders))
    rows = () if orders is not None and not orders else connection.execute(query)
    states = {row.id: row for row in map(_row, rows)}
    return OrderState(states, list(connection.execute(free).scalars()), is_over(connection, sweep))


def any_leased(connection: Connection) -> bool:
    """Return whether any client of any sweep has an order."""
    return connection.execute(select(AGENT_ORDERS.c.id).where(_LEASED).limit(1)).first() is not None


class Client(NamedTuple):
    """A client that has asked."""

    client: str
    host: str
    seen: float
    wants: int


def clients_of(connection: Connection, sweep: str) -> list[Client]:
    """Return the clients of a sweep."""
    columns = (AGENT_CLIENTS.c[name] for name in Client._fields)
    query = select(*columns).where(AGENT_CLIENTS.c.sweep == sweep)
    return [Client(*row) for row in connection.execute(query.order_by(AGENT_CLIENTS.c.client))]
