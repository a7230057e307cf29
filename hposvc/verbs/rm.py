"""`rm`: delete a sweep: files first, the journal last, so that nothing is orphaned."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from hposvc.errors import StoreError, entry
from hposvc.verbs.options import Shared, open_place, sweep_id, verb
from hposvc.views.console import note, plain, show

if TYPE_CHECKING:
    from hposvc.api import Sweeps
    from hposvc.journal.journal import SweepRow
    from hposvc.remote.client import Place


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

    removed = remove(open_place(shared), sweep, confirm)
    if not shared.json({"removed": removed.sweep, "left": removed.left or None}):
        show(f"{removed.sweep} is removed; MLflow keeps its runs")
    if removed.left:
        note(f"{removed.left} stays: there is more in it than {removed.sweep} wrote")


@dataclass(frozen=True)
class Removed:
    """A deleted sweep."""

    sweep: str
    left: str  # folders that stay because they hold other files too; empty: none


def remove(
    place: "Place", sweep: str, confirm: Callable[[str], None] = lambda sweep: None
) -> Removed:
    """Delete a sweep's checkpoints, logs and journal; other files in its folder stay.

    MLflow keeps the runs but not their owner: a new sweep with this id does not continue them.

    Args:
        confirm: receives the sweep's full id before anything is deleted; may raise.

    Raises:
        NotFound: there is no such sweep.
        Busy: a driver is at work on it.
        StoreError: a file can't be deleted, or MLflow does not answer; the journal is unchanged.
    """
    from hposvc.remote.server import connection

    if isinstance(place, connection.ServedSweeps):
        name = place.status(sweep)["sweep"]
        confirm(name)
        result = place.result(place.http.delete(connection.place(name)))
        return Removed(name, result.get("left") or "")
    row = place.find(sweep)
    confirm(row.id)
    with place.journal.store.with_spare_room():
        return _remove(place, row)


def _remove(sweeps: "Sweeps", row: "SweepRow") -> Removed:
    from hposvc import spec as specs
    from hposvc.journal import operations, submitted_secrets
    from hposvc.journal.lease import Lease
    from hposvc.operations.delete import delete_files, disown_runs

    lease = Lease(sweeps.journal.store, row.id, "rm")
    lease.acquire()
    try:
        spec = specs.restore(row.spec)
        try:
            left = delete_files(sweeps, row, spec)
            disown_runs(sweeps, row, spec)
        except Exception as error:
            message = f"{row.id} is not removed: {type(error).__name__}: {error}"
            raise StoreError(message, "fix that and run the command again") from error
        sweeps.journal.remove(row.id)
        submitted_secrets.delete(sweeps.home, row.id)
        deleted = entry("not_found", f"{row.id} was deleted before its driver began")
        operations.end_waiting(sweeps.journal.store, row.id, errors=[deleted])
    finally:
        lease.release()
    return Removed(row.id, left)
