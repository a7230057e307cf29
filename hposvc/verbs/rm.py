"""`rm`: delete a sweep with its checkpoints and logs; deletion.py says in which order."""

import sys
from dataclasses import dataclass
from typing import Annotated

import click

from hposvc.api import Sweeps
from hposvc.errors import Busy
from hposvc.journal import supervision
from hposvc.operation import operation
from hposvc.text import doc
from hposvc.verbs import deletion
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import note, plain, show


@dataclass(frozen=True)
class Removed:
    """A deleted sweep."""

    removed: str
    left: Annotated[str | None, doc("Folders that stay as they hold other files, too; or null.")]


@verb
@sweep_id
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rm_command(shared: Shared, sweep: str, yes: bool) -> None:
    """Delete a sweep: its journal, checkpoints and logs. MLflow keeps its runs.

    Files in its folder that the sweep did not write stay, too. At a terminal, it asks first.
    """
    place = shared.open_place()
    name = place.find(sweep).id
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        question = plain(f"remove {name}, with its checkpoints and logs?")
        click.confirm(question, abort=True, err=True)
    removed = remove(place, name)
    if not shared.json(remove.data(removed)):
        show(f"{name} is removed; MLflow keeps its runs")
    if removed.left:
        note(f"{removed.left} stays: there is more in it than {name} wrote")


@operation("DELETE", "sweeps/{sweep}", "steer")
def remove(sweeps: Sweeps, sweep: str) -> Removed:
    """Delete a sweep's checkpoints, logs and journal; MLflow keeps its runs.

    Other files in the sweep's folder stay.

    Raises:
        NotFound: there is no such sweep.
        Busy: a driver is at work on it, or its server is to start one.
        StoreError: see `deletion.remove`.
    """
    row, store = sweeps.find(sweep), sweeps.journal.store
    # A sweep that still waits for its first driver is at rest.
    if sweeps.by and supervision.find(store, row.id) and sweeps.journal.last(row.id):
        message = f"{row.id}: the server keeps a driver at work on it"
        raise Busy(message, f"end it first: POST /api/v1/sweeps/{row.id}/stop")
    with store.with_spare_room():
        return Removed(row.id, deletion.remove(sweeps, row) or None)
