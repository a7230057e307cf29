"""Deletion of what no sweep needs, and compression of the journal of ended sweeps."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from hposvc.api import Sweeps
from hposvc.errors import Busy, Fenced, SpecError, StoreError
from hposvc.events import UnknownEvent
from hposvc.journal.compression import Damaged
from hposvc.journal.home import find
from hposvc.journal.lease import Lease, driver_state
from hposvc.operations import garbage
from hposvc.operations.garbage import Garbage


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
    sweeps: Sweeps,
    sweep: str | None = None,
    dry_run: bool = False,
    compressed: bool = False,
    logs: bool = False,
) -> Freed:
    """Delete what no sweep needs, of one sweep or of the whole home.

    Args:
        dry_run: delete and compress nothing.
        compressed: compress the journal of ended sweeps, too.
        logs: delete logs of ended sweeps, too; those of the best and of failed trials stay.

    Raises:
        NotFound: there is no such sweep.
    """
    store = sweeps.journal.store
    # A dry run on a full disk leaves the spare room to the real one.
    with nullcontext() if dry_run else store.with_spare_room():
        return _collect(sweeps, sweep, dry_run, compressed, logs)


def _collect(
    sweeps: Sweeps, sweep: str | None, dry_run: bool, compressed: bool, logs: bool
) -> Freed:
    if sweep is None:
        names, items = [row.id for row in sweeps.journal.sweeps()], garbage.of_home(sweeps)
    else:
        names, items = [find(sweeps.journal, sweep).id], []
    freed = Freed()
    for name in names:
        try:
            items += garbage.of_sweep(sweeps, name, logs)
        except (OSError, SpecError, StoreError, UnknownEvent) as error:
            freed.failures.append(f"{name}: {error}")
    _delete(items, dry_run, freed)
    if compressed:
        _compress(sweeps, names, dry_run, freed)
    return freed


def _delete(items: Iterable[Garbage], dry_run: bool, freed: Freed) -> None:
    for item in items:
        try:
            if not dry_run:
                garbage.free(item)
            freed.items.append(item)
        except OSError as error:
            freed.failures.append(f"{item.path} stays: {error}")


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
