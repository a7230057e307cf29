"""Read the list of sweeps of a home for `ls`, and the events of a sweep for `events`."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from hposvc import api
from hposvc.api import Sweeps
from hposvc.errors import SpecError, StoreError
from hposvc.events import DriverState, UnknownEvent, to_json
from hposvc.journal.compression import Damaged
from hposvc.journal.journal import Listed, SweepRow
from hposvc.state import summary
from hposvc.state.answers import ListedSweep
from hposvc.state.sweep import SweepState
from hposvc.text import spelled

Read: TypeAlias = Callable[[SweepRow], SweepState]  # returns a sweep's state as of now

UNREADABLE = "UNREADABLE"  # in place of a state: this version can't read the sweep
LISTED = 2  # version of the cached rows; raise it when `ls` shows other facts
POLL_S = 0.2  # between two looks into the journal


def ls(
    sweeps: Sweeps, project: str | None = None, tag: str | None = None, since: float | None = None
) -> list[ListedSweep]:
    """List all sweeps, newest first; an unreadable sweep is listed with the reason.

    Args:
        tag: `name`, or `name=value`.
        since: list only sweeps created at or after this time, in seconds of the epoch.
    """
    found = sweeps.journal.sweeps(project, since)
    rows = [row for row in found if tag is None or has_tag(row, tag)]
    return ls_rows(sweeps, rows, lambda row: api.follow_row(sweeps, row).look())


def has_tag(row: SweepRow, tag: str) -> bool:
    """Return whether a sweep has a tag, `name` or `name=value`."""
    name, equals, value = tag.partition("=")
    tags = row.spec.get("tags", {})
    return name in tags and (not equals or str(tags[name]) == value)


def ls_rows(sweeps: Sweeps, rows: Sequence[SweepRow], read: Read) -> list[ListedSweep]:
    """Return the rows of `ls`; of an unreadable sweep, with the reason under `why`.

    Args:
        read: returns a sweep's state as of now; called for sweeps that have not ended.
    """
    listed = sweeps.journal.listed([row.id for row in rows])
    # A sweep that was deleted just now is left out.
    return [
        _ls_row_or_reason(sweeps, row, listed[row.id], read) for row in rows if row.id in listed
    ]


def _ls_row_or_reason(sweeps: Sweeps, row: SweepRow, known: Listed, read: Read) -> ListedSweep:
    """Return a sweep's row of `ls`. A sweep of another version must not hide the others."""
    try:
        return _ls_row(sweeps, row, known, read)
    except Exception as error:  # events of another version may break anything
        if isinstance(error, StoreError) and not isinstance(error.__cause__, Damaged):
            raise
        is_ours = isinstance(error, StoreError | SpecError | UnknownEvent)
        why = f"{error}" if is_ours else f"{type(error).__name__}: {error}"
    return ListedSweep(row.id, row.name, row.project, row.created, UNREADABLE, why=why)


def _ls_row(sweeps: Sweeps, row: SweepRow, known: Listed, read: Read) -> ListedSweep:
    """Return a sweep's row of `ls`; the journal caches the rows of ended sweeps."""
    key = {"version": LISTED, "seq": known.seq}  # what the cached row depends on
    if known.row.get("of") == key:
        return ListedSweep(**known.row["row"])
    # The driver first: one that ends now writes its last events before it lets go.
    driver = sweeps.driver_of(row)
    state = read(row)
    listed = _summarize(row, state, driver)
    if state.finished:
        with suppress(StoreError):  # without a cached row, the next `ls` computes it again
            sweeps.journal.record_listed(row.id, {"of": key, "row": vars(listed)})
    return listed


def _summarize(row: SweepRow, state: SweepState, driver: DriverState) -> ListedSweep:
    value = None if state.best is None else state.trials[state.best].value
    return ListedSweep(
        sweep=row.id,
        name=row.name,
        project=row.project,
        created=row.created,
        state=summary.phase(state, driver),
        trials=len(state.trials),
        best_value=value,
        front=len(state.front) if state.spec.several else None,
        elapsed_s=round(state.worked_s, 3),
        gpu_hours=state.gpu_hours,
    )


def events(sweeps: Sweeps, sweep: str, since: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
    """Return the events of a sweep after a number, as data.

    Args:
        since: 0: all events.
        wait_s: for how long to wait for the first, while the sweep is not over.

    Returns:
        `events`; `next`, the number after which to ask for more; and whether the sweep is `over`,
        so that there will be no more.

    Raises:
        NotFound: there is no such sweep.
    """
    deadline = time.monotonic() + wait_s
    follow = sweeps.follow(sweep)
    while True:
        record = sweeps.record_of(follow.row, follow.look)
        over = record.state.finished and record.driver != "alive"
        if follow.seq > since or over or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    matching = [
        {
            "sweep": record.row.id,
            "seq": seq,
            "kind": event.kind,
            "time": event.time,
            "data": spelled(json.loads(to_json(event))),
        }
        for seq, event in sweeps.read(record.row.id, since)
    ]
    return {"events": matching, "next": matching[-1]["seq"] if matching else since, "over": over}
