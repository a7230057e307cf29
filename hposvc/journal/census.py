"""Count what is at work now, over all sweeps, for those who watch a server."""

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import func, select

from hposvc.journal.database import AGENT_ORDERS, LEASES, Store
from hposvc.journal.lease import holder_of


class Census(NamedTuple):
    """The drivers and agents that are at work."""

    driven: frozenset[str]  # sweeps with a living driver
    leased: Mapping[str, int]  # trials that agents have, by sweep


def take(store: Store) -> Census:
    """Count the drivers and agents that are at work now."""
    sweep = AGENT_ORDERS.c.sweep
    leased = select(sweep, func.count()).where(AGENT_ORDERS.c.state == "leased").group_by(sweep)
    with store.reading() as connection:
        holders = {row.sweep: holder_of(row) for row in connection.execute(select(LEASES))}
        driven = frozenset(name for name, holder in holders.items() if holder.state == "alive")
        return Census(driven, {name: count for name, count in connection.execute(leased)})
