"""`ls`: list sweeps, newest first."""

import time
from collections.abc import Iterable
from datetime import datetime

import click
from rich.table import Table

from hposvc.spec.types import read_seconds
from hposvc.state.answers import ListedSweep
from hposvc.text import NONE, duration, number
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import make_table, note, show
from hposvc.views.dashboard import phase_text


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
