"""`ls`: list sweeps, newest first."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeAlias

import click
from rich.table import Table

from hposvc import api
from hposvc.api import Sweeps
from hposvc.errors import SpecError, StoreError
from hposvc.events import DriverState, UnknownEvent
from hposvc.journal.compression import Damaged
from hposvc.journal.journal import Listed, SweepRow
from hposvc.spec.types import read_seconds
from hposvc.state import summary
from hposvc.state.answers import ListedSweep
from hposvc.state.sweep import SweepState
from hposvc.text import NONE, duration, number
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import make_table, note, show
from hposvc.views.dashboard import phase_text

Read: TypeAlias = Callable[[SweepRow], SweepState]  # returns a sweep's state as of now


UNREADABLE = "UNREADABLE"  # in place of a state: this version can't read the sweep
LISTED = 2  # version of the cached rows; raise it when `ls` shows other facts


@verb
@click.option("--project", metavar="NAME", help="List only sweeps of this project.")
@click.option("--tag", metavar="NAME[=VALUE]", help="List only sweeps with this tag.")
@click.option(
    "--since", metavar="TIME", help="List only sweeps since a date, or an age: 2025-11-01, 12h, 7d."
)
def ls_command(shared: Shared, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    try:
        created_after = None if since is None else parse_time(since, time.time())
    except ValueError as error:
        raise click.UsageError(f"--since {error}, or a date like 2025-11-01") from error
    rows = shared.open_place().ls(project, tag, created_after)
    if not shared.json(rows):
        show(table(rows))
        for row in rows:
            if row.why:
                note(f"{row.sweep} can't be read: {row.why}")


def parse_time(text: str, now: float) -> float:
    """Parse a date (local time), or a time span before `now` such as `12h` or `7d`.

    Returns:
        seconds of the epoch.

    Raises:
        ValueError: the text is neither.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return now - read_seconds(text)


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


def table(listed: Iterable[ListedSweep]) -> Table:
    """Return the table of `ls`, one row per sweep."""
    made = make_table("sweep", "state", "trials", "best", "project", "age")
    for sweep in listed:
        made.add_row(
            sweep.sweep,
            phase_text(sweep.state),
            NONE if sweep.trials is None else str(sweep.trials),
            number(sweep.best_value) if sweep.front is None else f"front of {sweep.front}",
            sweep.project,
            duration(time.time() - sweep.created),
        )
    return made
