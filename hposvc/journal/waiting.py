"""Sweeps that wait before they can run: for a driver, or for a first slot."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from hposvc.journal import claims, supervision
from hposvc.journal.claims import ClaimRow
from hposvc.journal.database import Store
from hposvc.text import doc, listed

NAMED = 5  # sweeps that are named
DRIVER = "a driver"


@dataclass(frozen=True)
class SweepWait:
    """The driver or the resources that a sweep waits for, since when, and behind whom."""

    what: Annotated[str, doc("A driver, or the resources of a slot.", "1 GPU")]
    since: Annotated[float, doc("Seconds since the epoch.")]
    ahead: Annotated[
        tuple[str, ...],
        doc("Sweeps that have it, or wait longer; only those that the caller sees."),
    ] = ()
    until: Annotated[float | None, doc("When it is expected; null: unknown.")] = None
    reason: Annotated[str, doc("Of the wait, if it is not that others come first.")] = ""

    def data(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {**asdict(self), "ahead": list(self.ahead)}

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> "SweepWait | None":
        """Return what `data` wrote; None: nothing."""
        return None if data is None else cls(**{**data, "ahead": tuple(data["ahead"])})

    def among(self, sweeps: Collection[str]) -> "SweepWait":
        """Return the wait with those sweeps before it that are among these."""
        return replace(self, ahead=tuple(name for name in self.ahead if name in sweeps))

    def describe(self) -> str:
        """Return in words since when the sweep waits, behind which, and until when."""
        behind = f", behind {listed(self.ahead, NAMED)}" if self.ahead else ""
        until = "" if self.until is None else f", until about {_clock(self.until, '%H:%M')}"
        why = f": {self.reason}" if self.reason else ""
        return f"waiting for {self.what} since {_clock(self.since)}{behind}{until}{why}"


def find_waiting(store: Store, sweep: str) -> SweepWait | None:
    """Return what a sweep waits for; None: it has slots, or is to have no driver."""
    asked = supervision.find(store, sweep)
    if asked is not None and asked.driver.state != "alive":
        return driver_waits(store).get(sweep)
    row = claims.find(store, sweep)
    return None if row is None else slot_wait(row)


def driver_waits(store: Store) -> dict[str, SweepWait]:
    """Return the waits of all sweeps that wait for a driver, the first in line first."""
    asked = supervision.supervised(store)
    working = [each.sweep for each in asked if each.driver.state == "alive"]
    waits: dict[str, SweepWait] = {}
    ends = sorted(_ends(store, working))
    for each in asked:
        if each.driver.state != "alive":
            until = ends[len(waits)] if len(waits) < len(ends) else None
            waits[each.sweep] = SweepWait(DRIVER, each.since, (*working, *waits), until)
    return waits


def _ends(store: Store, sweeps: Sequence[str]) -> list[float]:
    """Return when those of these sweeps will end whose drivers know it."""
    rows = (row for row in claims.read(store) if row.live and row.sweep in sweeps)
    ends = (row.share.get("ends_at") for row in rows)
    return [end for end in ends if end is not None]


def slot_wait(row: ClaimRow) -> SweepWait | None:
    """Return what a sweep with a driver waits for on its cluster; None: it has a slot."""
    return SweepWait.of(row.share.get("wait")) if row.live and not row.claim.get("held") else None


def _clock(at: float, form: str = "%H:%M:%S") -> str:
    return time.strftime(form, time.localtime(at))
