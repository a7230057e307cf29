"""`queue`: list the sweeps that share a cluster, what each has, and what it waits for."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from hposvc.errors import SpecError
from hposvc.journal import claims
from hposvc.journal.database import Store
from hposvc.journal.waiting import SweepWait, driver_waits, slot_wait
from hposvc.queue.claim import Claim
from hposvc.queue.rules import Rules
from hposvc.remote.place import Place
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec.sections import Price
from hposvc.text import NONE, duration
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import make_table, note, show

NO_CLAIM = (
    *("cluster", "queue", "user", "priority", "weight", "wanted", "held", "slots", "due"),
    *("money", "currency", "ahead_s"),
)


@verb
def queue_command(shared: Shared) -> None:
    """List the sweeps that share a cluster: what each has, is due, and waits for."""
    rows = queue(shared.open_place())
    if shared.json(rows):
        return
    if not rows:
        note("No sweep holds a slot or waits for one.")
    else:
        show(table(rows, time.time()))
        for row in rows:
            waiting = SweepWait.of(row["waiting"])
            if waiting is not None:
                note(f"{row['sweep']} is {waiting.describe()}")


def queue(place: Place) -> list[dict[str, Any]]:
    """Return the sweeps that hold slots or wait for some, by queue and user, then by arrival."""
    if isinstance(place, ServedSweeps):
        listed: list[dict[str, Any]] = place.http.get("queue")["sweeps"]
        return listed
    return queue_rows(place.journal.store)


def queue_rows(store: Store) -> list[dict[str, Any]]:
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
        waiting = slot_wait(row)
        account = claim.account.at_time(now, rules.half_life)
        rows.append(
            {
                "sweep": row.sweep,
                "cluster": row.cluster,
                **{name: getattr(claim, name) for name in ("queue", "user", "priority", "weight")},
                "wanted": claim.wanted,
                "held": len(claim.held),
                "slots": row.share.get("slots"),
                "due": row.share.get("due"),
                "money": row.share.get("money"),
                "currency": row.share.get("currency"),
                "ahead_s": round(account.balance, 3),
                "since": claim.since,
                "waiting": None if waiting is None else waiting.data(),
            }
        )
    rows.sort(key=lambda row: (row["cluster"], row["queue"], row["user"], row["since"]))
    known = {row["sweep"] for row in rows}
    no_claim = dict.fromkeys(NO_CLAIM)
    return rows + [
        {"sweep": sweep, **no_claim, "since": waiting.since, "waiting": waiting.data()}
        for sweep, waiting in driver_waits(store).items()
        if sweep not in known
    ]


def table(rows: Iterable[Mapping[str, Any]], now: float) -> Table:
    """Return the table of `queue`, one row per sweep.

    Args:
        now: in seconds of the epoch.
    """
    listed = [*rows]
    priced = ["cost"] if any(row["money"] is not None for row in listed) else []
    columns = ("sweep", "queue", "user", "priority", "weight", "slots", "share", *priced, "age")
    made = make_table(*columns)
    for row in listed:
        cells = [row["queue"], row["user"], row["priority"], row["weight"]]
        cells += [None if row["held"] is None else f"{row['held']} of {row['wanted']}"]
        cells += [row["slots"]]
        for _ in priced:
            price = Price(currency=row["currency"] or "")
            cells.append(None if row["money"] is None else price.text(row["money"]))
        texts = (
            NONE if cell is None else f"{cell:g}" if isinstance(cell, float) else f"{cell}"
            for cell in cells
        )
        made.add_row(row["sweep"], *texts, duration(now - row["since"]))
    return made
