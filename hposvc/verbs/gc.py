"""`gc`: delete files that no sweep needs, and compress the journal of ended sweeps."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Annotated

import click
from rich.console import Group, RenderableType

from hposvc.api import Sweeps
from hposvc.errors import OUT_OF_REACH, Busy, Fenced, SpecError, StoreError
from hposvc.events import UnknownEvent
from hposvc.journal.compression import Damaged
from hposvc.journal.lease import Lease, driver_state
from hposvc.operation import operation
from hposvc.text import doc, format_bytes
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
    place, asked = shared.open_place(), (dry_run, compact, logs)
    freed = collect(place, *asked) if sweep is None else collect_of_sweep(place, sweep, *asked)
    if not shared.json(collect.data(freed)["files"]):
        show(table(freed.files, "to be freed" if dry_run else "freed"))
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

    files: list[Garbage] = field(default_factory=list)
    failures: Annotated[list[str], doc("What stays although it is garbage, and why.")] = field(
        default_factory=list
    )
    vacuum_later: Annotated[
        bool, doc("The journal's file keeps its size, because a sweep runs.")
    ] = False


DryRun = Annotated[bool, doc("Delete and compress nothing.")]
Compact = Annotated[bool, doc("Compress the journal of ended sweeps, too.")]
Logs = Annotated[
    bool, doc("Delete logs of ended sweeps, but those of the best and of failed trials.")
]


@operation("POST", "gc", "admin", repeatable=True)
def collect(
    sweeps: Sweeps, dry_run: DryRun = False, compact: Compact = False, logs: Logs = False
) -> Freed:
    """Delete what no sweep needs, of all sweeps and of none."""
    return _collect(sweeps, None, dry_run, compact, logs)


@operation("POST", "sweeps/{sweep}/gc", "steer", repeatable=True)
def collect_of_sweep(
    sweeps: Sweeps,
    sweep: str,
    dry_run: DryRun = False,
    compact: Compact = False,
    logs: Logs = False,
) -> Freed:
    """Delete checkpoints that a sweep does not need, unless a driver is at work on it.

    Raises:
        NotFound: there is no such sweep.
    """
    return _collect(sweeps, sweeps.find(sweep).id, dry_run, compact, logs)


def _collect(sweeps: Sweeps, sweep: str | None, dry_run: bool, compact: bool, logs: bool) -> Freed:
    """Delete what one sweep, or no sweep, needs."""
    # A dry run on a full disk leaves the spare room to the real one.
    with nullcontext() if dry_run else sweeps.journal.store.with_spare_room():
        if sweep is None:
            names, items = [row.id for row in sweeps.journal.sweeps()], garbage.of_home(sweeps)
        else:
            names, items = [sweep], []
        freed = _free(sweeps, names, items, dry_run, logs)
        if compact:
            _compress(sweeps, names, dry_run, freed)
        return freed


def _free(
    sweeps: Sweeps, names: Sequence[str], items: list[Garbage], dry_run: bool, logs: bool
) -> Freed:
    """Delete items, and what is garbage of the named sweeps."""
    freed = Freed()
    for name in names:
        try:
            items += garbage.of_sweep(sweeps, name, logs)
        except (OSError, SpecError, StoreError, UnknownEvent) as error:
            freed.failures.append(f"{name}: {error}")
    for item in items:
        try:
            if not dry_run:
                item = garbage.free(item)
            freed.files.append(item)
        except OSError as error:
            freed.failures.append(f"{item.path} stays: {error}")
    return freed


def _compress(sweeps: Sweeps, names: Sequence[str], dry_run: bool, freed: Freed) -> None:

    packed = False
    for name in names:
        try:
            item = compress(sweeps, name, dry_run)
            if item is not None:
                freed.files.append(item)
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
    item = Garbage("journal", sweep, packs.saved, why, freed=not dry_run)
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
