"""The feed: in which order events were written, over all sweeps, so that each can be read once.

A row is written in the transaction that writes the events. On SQLite transactions follow one
another, and so do the rows' ids. On Postgres a transaction may end later than one with a higher id:
so rows are read in the order of their transactions' numbers, and only those before which no
transaction is open any more. A transaction that stays open delays the feed, and loses nothing.
"""

from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, literal, select, tuple_

from hposvc.journal.database import FEED, Store


class FeedPosition(NamedTuple):
    """A place in the feed: what was read of it."""

    xid: int  # of the last row that was read
    id: int
    seq: int  # of the last event of that row that was read


BEGIN = FeedPosition(0, 0, 0)


class FeedRow(NamedTuple):
    """Events that were written together: those of `sweep` from number `since + 1` to `seq`."""

    xid: int
    id: int
    sweep: str
    since: int
    seq: int

    @property
    def end(self) -> FeedPosition:
        """The position at which all events of the row were read."""
        return FeedPosition(self.xid, self.id, self.seq)


def announce(connection: Connection, sweep: str, since: int, seq: int) -> None:
    """Write a row, in the transaction that writes these events."""
    values = {"sweep": sweep, "since": since, "seq": seq}
    xid = func.txid_current() if _is_postgres(connection) else 0
    connection.execute(insert(FEED).values(**values, xid=xid))


def read(store: Store, position: FeedPosition, limit: int) -> list[FeedRow]:
    """Return the rows that hold what follows a position, in order; at most `limit` rows."""
    at, last = tuple_(FEED.c.xid, FEED.c.id), tuple_(literal(position.xid), literal(position.id))
    query = select(FEED.c.xid, FEED.c.id, FEED.c.sweep, FEED.c.since, FEED.c.seq)
    with store.reading() as connection:
        if _is_postgres(connection):
            query = query.where(FEED.c.xid < func.txid_snapshot_xmin(func.txid_current_snapshot()))
        ordered = query.where(at >= last).order_by(FEED.c.xid, FEED.c.id).limit(limit + 1)
        rows = [FeedRow(*row) for row in connection.execute(ordered)]
    return [row for row in rows if row.end > position][:limit]


def end(store: Store) -> FeedPosition:
    """Return the position behind all rows of now."""
    query = select(FEED.c.xid, FEED.c.id, FEED.c.seq).order_by(FEED.c.xid.desc(), FEED.c.id.desc())
    with store.reading() as connection:
        if _is_postgres(connection):
            query = query.where(FEED.c.xid < func.txid_snapshot_xmin(func.txid_current_snapshot()))
        row: Any = connection.execute(query.limit(1)).one_or_none()
    return BEGIN if row is None else FeedPosition(*row)


def _is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"
