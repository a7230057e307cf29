"""What a sweep waits for before it can run: a driver, or its first slot."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from hposvc.journal import claims
from hposvc.journal.claims import ClaimRow
from hposvc.journal.database import CLAIMS, Store
from hposvc.journal.supervision import Supervised, supervised

NAMED = 5  # sweeps that are named
DRIVER = "a driver"


@dataclass(frozen=True)
class SweepWait:
    """What a sweep waits for."""

    what: str  # `a driver`, or the resources of a slot
    since: float  # in seconds of the epoch
    ahead: tuple[str, ...] = ()  # sweeps that have it, or that wait for it longer
    until: float | None = None  # when it is expected; None: unknown
    reason: str = ""  # of the wait, if it is not that others come first

    def data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {**asdict(self), "ahead": list(self.ahead)}

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> "SweepWait | None":
        """Return what `data` wrote; None: nothing."""
        return None if data is None else cls(**{**data, "ahead": tuple(data["ahead"])})

    def describe(self) -> str:
        """Return in words since when the sweep waits, behind which, and until when."""
        more = f" and {len(self.ahead) - NAMED} more" if len(self.ahead) > NAMED else ""
        behind = f", behind {', '.join(self.ahead[:NAMED])}{more}" if self.ahead else ""
        until = "" if self.until is None else f", until about {_clock(self.until, '%H:%M')}"
        why = f": {self.reason}" if self.reason else ""
        return f"waiting for {self.what} since {_clock(self.since)}{behind}{until}{why}"


def find_waiting(
    store: Store, sweep: str, supervised_sweeps: Sequence[Supervised] | None = None
) -> SweepWait | None:
    """Return what a sweep waits for; None: it has slots, or is to have no driver.

    Args:
        supervised_sweeps: those of the journal; None: they are read.
    """
    asked = supervised(store) if supervised_sweeps is None else supervised_sweeps
    mine = next((each for each in asked if each.sweep == sweep), None)
    if mine is not None and mine.driver.state != "alive":
        before = asked[: asked.index(mine)]
        working = [each.sweep for each in asked if each.driver.state == "alive"]
        waiting = [each.sweep for each in before if each.sweep not in working]
        ends = sorted(_ends(store, working))
        until = ends[len(waiting)] if len(waiting) < len(ends) else None
        return SweepWait(DRIVER, mine.since, (*working, *waiting), until)
    with store.reading() as connection:
        cluster = connection.execute(
            select(CLAIMS.c.cluster).where(CLAIMS.c.sweep == sweep)
        ).scalar()
    rows = [] if cluster is None else claims.read(store, cluster)
    row = next((row for row in rows if row.sweep == sweep), None)
    return None if row is None or row.claim["held"] else waiting_for_slot(row)


def _ends(store: Store, sweeps: Sequence[str]) -> list[float]:
    """Return when those of these sweeps will end whose drivers know it."""
    rows = (row for row in claims.read(store) if row.live and row.sweep in sweeps)
    ends = (row.share.get("ends_at") for row in rows)
    return [end for end in ends if end is not None]


def waiting_for_slot(row: ClaimRow) -> SweepWait | None:
    """Return what a sweep with a driver waits for on its cluster; None: nothing."""
    return SweepWait.of(row.share.get("wait")) if row.live else None


def _clock(at: float, form: str = "%H:%M:%S") -> str:
    return time.strftime(form, time.localtime(at))
