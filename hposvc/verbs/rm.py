"""`rm`: delete a sweep with its checkpoints and logs; deletion.py says in which order."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import click

from hposvc.remote.place import Place
from hposvc.remote.server.connection import ServedSweeps, path_of
from hposvc.verbs import deletion
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import note, plain, show


@dataclass(frozen=True)
class Removed:
    """A deleted sweep."""

    sweep: str
    left: str  # folders that stay because they hold other files too; empty: none


@verb
@sweep_id
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rm_command(shared: Shared, sweep: str, yes: bool) -> None:
    """Delete a sweep: its journal, checkpoints and logs. MLflow keeps its runs.

    Files in its folder that the sweep did not write stay, too. At a terminal, it asks first.
    """

    def confirm(name: str) -> None:
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            question = plain(f"remove {name}, with its checkpoints and logs?")
            click.confirm(question, abort=True, err=True)

    removed = remove(shared.open_place(), sweep, confirm)
    if not shared.json({"removed": removed.sweep, "left": removed.left or None}):
        show(f"{removed.sweep} is removed; MLflow keeps its runs")
    if removed.left:
        note(f"{removed.left} stays: there is more in it than {removed.sweep} wrote")


def remove(
    place: Place, sweep: str, confirm: Callable[[str], None] = lambda sweep: None
) -> Removed:
    """Delete a sweep's checkpoints, logs and journal; other files in its folder stay.

    Args:
        confirm: receives the sweep's full id before anything is deleted; may raise.

    Raises:
        NotFound: there is no such sweep.
        Busy, StoreError: see `deletion.remove`.
    """
    if isinstance(place, ServedSweeps):
        name = place.status(sweep)["sweep"]
        confirm(name)
        result = place.result(place.http.delete(path_of(name)))
        return Removed(name, result.get("left") or "")
    row = place.find(sweep)
    confirm(row.id)
    with place.journal.store.with_spare_room():
        return Removed(row.id, deletion.remove(place, row))
