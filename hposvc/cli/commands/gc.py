"""The verb that deletes files which no sweep needs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.exit_codes import OUT_OF_REACH
from hposvc.cli.options import Shared
from hposvc.views.console import note, show

if TYPE_CHECKING:
    from hposvc.api import Sweeps
    from hposvc.operations.garbage import Garbage


@verb
@click.argument("sweep", metavar="[ID]", required=False)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@click.option("--compact", is_flag=True, help="Compress the journal of ended sweeps, too.")
def gc(shared: Shared, sweep: str | None, dry_run: bool, compact: bool) -> int:
    """Delete files that no sweep needs any more.

    These are orphaned and incomplete checkpoints, and folders of no sweep. With ID: of that sweep
    alone. Sweeps that are running are left as they are.
    """
    from hposvc.errors import SpecError
    from hposvc.events import UnknownEvent
    from hposvc.journal.database import StoreError
    from hposvc.journal.home import find
    from hposvc.operations import garbage
    from hposvc.views.gc import garbage_table

    sweeps = open_home(shared)
    if sweep is None:
        names, items = [row.id for row in sweeps.journal.sweeps()], garbage.of_home(sweeps)
    else:
        names, items = [find(sweeps.journal, sweep).id], []
    failures: list[str] = []
    for name in names:
        try:
            items += garbage.of_sweep(sweeps, name)
        except (OSError, SpecError, StoreError, UnknownEvent) as error:
            failures.append(f"{name}: {error}")
    freed = []
    for item in items:
        try:
            if not dry_run:
                garbage.free(item)
            freed.append(item)
        except OSError as error:
            failures.append(f"{item.path} stays: {error}")
    if compact:
        freed += _compress_journals(sweeps, names, dry_run, failures)
    if not shared.json([{**asdict(item), "freed": not dry_run} for item in freed]):
        show(garbage_table(freed, freed=not dry_run))
    for failure in failures:
        note(failure)
    return OUT_OF_REACH if failures else 0


def _compress_journals(
    sweeps: "Sweeps", names: Sequence[str], dry_run: bool, failures: list[str]
) -> list["Garbage"]:
    """Compress the journals of ended sweeps, and return the space freed, an item per sweep.

    A sweep is compressed in one transaction, or stays as it is. With `dry_run`, nothing is
    written. Failures are appended to `failures`.
    """
    from hposvc.journal.compression import Damaged
    from hposvc.journal.database import StoreError
    from hposvc.journal.lease import driver_state
    from hposvc.operations import compact

    freed = []
    for name in names:
        try:
            compacted = compact.of_sweep(sweeps, name)
            if compacted is not None and (dry_run or compact.pack(sweeps, name, compacted[1])):
                freed.append(compacted[0])
        except (Damaged, StoreError) as error:
            failures.append(f"{name} stays as it is: {error}")
    store = sweeps.journal.store
    if freed and not dry_run:
        try:
            if any(driver_state(store, row.id) == "alive" for row in sweeps.journal.sweeps()):
                note("a sweep runs, which would wait: gc once more after it makes the file smaller")
            else:
                store.vacuum()
        except StoreError as error:
            failures.append(f"{error}")
    return freed
