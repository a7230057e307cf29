"""`gc`: delete files that no sweep needs, and compress the journal of ended sweeps."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import click
from rich.console import Group, RenderableType

from hposvc.api import Sweeps
from hposvc.errors import OUT_OF_REACH, Busy, Fenced, SpecError, StoreError
from hposvc.events import UnknownEvent
from hposvc.journal.compression import Damaged
from hposvc.journal.lease import Lease, driver_state
from hposvc.remote.place import Place
from hposvc.remote.server import connection
from hposvc.text import format_bytes
from hposvc.verbs import garbage
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.garbage import Garbage
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import make_table, note, show


@verb
@click.argument("sweep", metavar="[ID]", required=False, shell_complete=complete_sweep)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@click.option("--compact", is_flag=True, help="Compress the journal of ended sweeps, too.")
@click.option("--logs", is_flag=True, help="Delete logs of ended sweeps' trials, too.")
def gc_command(shared: Shared, sweep: str | None, dry_run: bool, compact: bool, logs: bool) -> int:
    """Delete files that no sweep needs any more.

    These are orphaned and incomplete checkpoints, and folders of no sweep. With ID: of that sweep
    alone. Sweeps that are running are left as they are. Logs of the best and of failed trials stay.
    """
    freed = collect(shared.open_place(), sweep, dry_run, compact, logs)
    if not shared.json(freed.data(dry_run)):
        show(table(freed.items, "to be freed" if dry_run else "freed"))
    if freed.vacuum_later:
        note("a sweep runs, which would wait: gc once more after it makes the file smaller")
    for failure in freed.failures:
        note(failure)
    return OUT_OF_REACH if freed.failures else 0


def table(items: Sequence[Garbage], fate: str) -> RenderableType:
    """Return the table of garbage with sizes and reasons, and the sum of the sizes."""
    if not items:
        return "nothing to free"
    rows = make_table("what", "size", "why", "where")
    for item in items:
        rows.add_row(item.what, format_bytes(item.size), item.why, item.path)
    return Group(rows, f"{format_bytes(sum(item.size for item in items))} {fate}")


@dataclass
class Freed:
    """Files that were deleted, or would be."""

    items: list[Garbage] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # what stays although it is garbage, and why
    vacuum_later: bool = False  # the journal's file keeps its size, because a sweep runs

    def data(self, dry_run: bool) -> list[dict[str, Any]]:
        """Return the files for JSON."""
        return [{**asdict(item), "freed": not dry_run} for item in self.items]


def collect(
    place: Place,
    sweep: str | None = None,
    dry_run: bool = False,
    compact: bool = False,
    logs: bool = False,
) -> Freed:
    """Delete what no sweep needs, of one sweep or of the whole home.

    Args:
        dry_run: delete and compress nothing.
        compact: compress the journal of ended sweeps, too.
        logs: delete logs of ended sweeps, too; those of the best and of failed trials stay.

    Raises:
        NotFound: there is no such sweep.
    """
    if isinstance(place, connection.ServedSweeps):
        where = "gc" if sweep is None else connection.path_of(sweep, "gc")
        body = {"dry_run": dry_run, "compact": compact, "logs": logs}
        result = place.result(place.http.post(where, body, repeatable=True))
        files = [{key: file[key] for key in file if key != "freed"} for file in result["files"]]
        garbage = [Garbage(**file) for file in files]
        return Freed(garbage, result["failures"], result["vacuum_later"])
    # A dry run on a full disk leaves the spare room to the real one.
    with nullcontext() if dry_run else place.journal.store.with_spare_room():
        return _collect(place, sweep, dry_run, compact, logs)


def _collect(sweeps: Sweeps, sweep: str | None, dry_run: bool, compact: bool, logs: bool) -> Freed:

    if sweep is None:
        names, items = [row.id for row in sweeps.journal.sweeps()], garbage.of_home(sweeps)
    else:
        names, items = [sweeps.find(sweep).id], []
    freed = Freed()
    for name in names:
        try:
            items += garbage.of_sweep(sweeps, name, logs)
        except (OSError, SpecError, StoreError, UnknownEvent) as error:
            freed.failures.append(f"{name}: {error}")
    for item in items:
        try:
            if not dry_run:
                garbage.free(item)
            freed.items.append(item)
        except OSError as error:
            freed.failures.append(f"{item.path} stays: {error}")
    if compact:
        _compress(sweeps, names, dry_run, freed)
    return freed


def _compress(sweeps: Sweeps, names: Sequence[str], dry_run: bool, freed: Freed) -> None:

    packed = False
    for name in names:
        try:
            item = compress(sweeps, name, dry_run)
            if item is not None:
                freed.items.append(item)
                packed = not dry_run
        except (Damaged, StoreError) as error:
            freed.failures.append(f"{name} stays as it is: {error}")
    store = sweeps.journal.store
    if not packed:
        return
    try:
        if any(driver_state(store, row.id) == "alive" for row in sweeps.journal.sweeps()):
            freed.vacuum_later = True  # a running sweep would have to wait
        else:
            store.vacuum()
    except StoreError as error:
        freed.failures.append(f"{error}")


def compress(sweeps: Sweeps, sweep: str, dry_run: bool = False) -> Garbage | None:
    """Compress the events of an ended sweep without loss, in one transaction; return what it frees.

    None: the sweep has not ended or is compressed already, or a driver has started.

    Raises:
        Damaged: the events can't be compressed without loss.
        StoreError: the journal can't be written; it is unchanged.
    """
    packs = sweeps.journal.pack(sweep)
    if packs is None:
        return None
    why = f"{packs.events} events of a sweep that has ended: packed"
    item = Garbage("journal", sweep, packs.saved, why)
    if dry_run:
        return item
    lease = Lease(sweeps.journal.store, sweep, "gc")
    try:
        lease.acquire()
    except Busy:
        return None
    try:
        sweeps.journal.replace(sweep, packs)
    except Fenced:
        return None
    finally:
        lease.release()
    return item
