"""`queue`: list the sweeps that share a cluster, what each has, and what it waits for."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated

from rich.table import Table

from hposvc.api import Sweeps
from hposvc.errors import SpecError
from hposvc.journal import claims
from hposvc.journal.database import Store
from hposvc.journal.waiting import SweepWait, driver_waits, slot_wait
from hposvc.operation import operation
from hposvc.queue.claim import Claim
from hposvc.queue.rules import Rules
from hposvc.spec.sections import Price
from hposvc.text import NONE, doc, duration
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import make_table, note, show


@verb
def queue_command(shared: Shared) -> None:
    """List the sweeps that share a cluster: what each has, is due, and waits for."""
    rows = queue(shared.open_place()).sweeps
    if shared.json([asdict(row) for row in rows]):
        return
    if not rows:
        note("No sweep holds a slot or waits for one.")
    else:
        show(table(rows, time.time()))
        for row in rows:
            if row.waiting is not None:
                note(f"{row.sweep} is {row.waiting.describe()}")


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """A sweep that holds slots of a cluster, or waits for some. null: it has no driver yet."""

    sweep: str
    cluster: Annotated[str | None, doc("The id of the cluster's head.")] = None
    queue: str | None = None
    user: str | None = None
    priority: int | None = None
    weight: float | None = None
    wanted: Annotated[int | None, doc("Slots that it can use, with those that it holds.")] = None
    held: Annotated[int | None, doc("Slots that it holds.")] = None
    slots: Annotated[int | None, doc("Slots that it may hold now.")] = None
    due: Annotated[float | None, doc("Its part of the cluster by its weight, in GPUs.")] = None
    money: Annotated[float | None, doc("Cost so far, by `price`; null: no price is known.")] = None
    currency: str | None = None
    ahead_s: Annotated[float | None, doc("GPU-seconds that it had beyond what was due to it.")] = (
        None
    )
    since: Annotated[float, doc("Seconds since the epoch: when it came to the cluster.")]
    waiting: Annotated[SweepWait | None, doc("null: it has a slot.")]


@dataclass(frozen=True)
class QueueRows:
    """The sweeps that share clusters, by cluster, queue and user, then by arrival."""

    sweeps: list[QueueRow]


@operation("GET", "queue", "read")
def queue(sweeps: Sweeps) -> QueueRows:
    """List the sweeps that hold slots of a cluster or wait for some, by queue and user."""
    found = [(row, sweeps.journal.find(row.sweep)) for row in queue_rows(sweeps.journal.store)]
    rows = [row for row, sweep in found if sweep is not None and sweeps.visible(sweep)]
    names = {row.sweep for row in rows}
    return QueueRows(
        [replace(row, waiting=row.waiting and row.waiting.among(names)) for row in rows]
    )


def queue_rows(store: Store) -> list[QueueRow]:
    """Return the rows of the queue from the journal."""
    try:
        rules = Rules.of(claims.read_rules(store))
    except SpecError:  # of a server of another version
        rules = Rules()
    now, rows = time.time(), []
    for row in claims.read(store):
        claim = Claim.read(row.claim) if row.live else None
        if claim is None or not claim.wanted:
            continue
        account = claim.account.at_time(now, rules.half_life)
        listed = QueueRow(
            sweep=row.sweep,
            cluster=row.cluster,
            queue=claim.queue,
            user=claim.user,
            priority=claim.priority,
            weight=claim.weight,
            wanted=claim.wanted,
            held=len(claim.held),
            ahead_s=round(account.balance, 3),
            since=claim.since,
            waiting=slot_wait(row),
            **{name: row.share.get(name) for name in ("slots", "due", "money", "currency")},
        )
        rows.append(listed)
    rows.sort(key=lambda row: (row.cluster, row.queue, row.user, row.since))
    known = {row.sweep for row in rows}
    waits = driver_waits(store).items()
    return rows + [
        QueueRow(sweep=sweep, since=waiting.since, waiting=waiting)
        for sweep, waiting in waits
        if sweep not in known
    ]


def table(rows: Sequence[QueueRow], now: float) -> Table:
    """Return the table of `queue`, one row per sweep.

    Args:
        now: in seconds of the epoch.
    """
    priced = ["cost"] if any(row.money is not None for row in rows) else []
    columns = ("sweep", "queue", "user", "priority", "weight", "slots", "share", *priced, "age")
    made = make_table(*columns)
    for row in rows:
        cells: list[str | float | None] = [row.queue, row.user, row.priority, row.weight]
        cells += [None if row.held is None else f"{row.held} of {row.wanted}"]
        cells += [row.slots]
        for _ in priced:
            price = Price(currency=row.currency or "")
            cells.append(None if row.money is None else price.text(row.money))
        texts = (
            NONE if cell is None else f"{cell:g}" if isinstance(cell, float) else f"{cell}"
            for cell in cells
        )
        made.add_row(row.sweep, *texts, duration(now - row.since))
    return made
