"""The deliveries of a sweep's notifications: one row for each event and channel.

A delivery is claimed before it is sent and settled afterwards, so two processes never send it at
the same time. If a process dies in between, the claim runs out and the delivery is sent again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, insert, select, update

from hposvc.events import MomentKind
from hposvc.journal.database import DELIVERIES, Store

DeliveryState = Literal["waiting", "sent", "failed"]


@dataclass(frozen=True)
class Delivery:
    """A message about an event, for one channel."""

    seq: int  # the event's number
    channel: int  # its place in the spec's `notify`
    what: MomentKind
    state: DeliveryState = "waiting"
    attempts: int = 0
    due: float = 0.0  # seconds of the epoch: of the next attempt, or the time of the last one
    reason: str = ""  # why the last attempt failed; empty: it did not


class Deliveries:
    """The deliveries of one sweep in the journal's database."""

    def __init__(self, store: Store, sweep: str) -> None:
        self._store, self._sweep = store, sweep

    def all(self) -> list[Delivery]:
        """Return all deliveries, in the order of their events."""
        columns = [column for column in DELIVERIES.c if column is not DELIVERIES.c.sweep]
        query = select(*columns).where(DELIVERIES.c.sweep == self._sweep)
        ordered = query.order_by(DELIVERIES.c.seq, DELIVERIES.c.channel)
        with self._store.reading() as connection:
            return [Delivery(**row._asdict()) for row in connection.execute(ordered)]

    def record(self, deliveries: Iterable[Delivery]) -> None:
        """Store new deliveries; those that are there already stay as they are."""
        with self._store.writing() as connection:
            for delivery in deliveries:
                delivered = select(DELIVERIES.c.seq).where(self._is(delivery))
                if connection.execute(delivered).one_or_none() is None:
                    values = {"sweep": self._sweep, **vars(delivery)}
                    connection.execute(insert(DELIVERIES).values(values))

    def claim(self, delivery: Delivery, until: float) -> bool:
        """Count an attempt, during which nobody else may send; False: somebody else has it.

        Args:
            until: when the delivery is due again, unless it is settled before.
        """
        values = {"attempts": delivery.attempts + 1, "due": until, "state": "waiting"}
        return self._update(delivery, delivery.attempts, values)

    def settle(
        self, delivery: Delivery, state: DeliveryState, due: float, reason: str = ""
    ) -> bool:
        """Store what became of a claimed attempt; False: somebody else has made another one."""
        values = {"state": state, "due": due, "reason": reason}
        return self._update(delivery, delivery.attempts + 1, values)

    def _update(self, delivery: Delivery, attempts: int, values: Mapping[str, object]) -> bool:
        """Change a delivery that is not sent yet, if it has had so many attempts."""
        current = (DELIVERIES.c.attempts == attempts) & (DELIVERIES.c.state != "sent")
        change = update(DELIVERIES).where(self._is(delivery), current).values(values)
        with self._store.writing() as connection:
            return connection.execute(change).rowcount == 1

    def _is(self, delivery: Delivery) -> ColumnElement[bool]:
        of_event = (DELIVERIES.c.sweep == self._sweep) & (DELIVERIES.c.seq == delivery.seq)
        return of_event & (DELIVERIES.c.channel == delivery.channel)
