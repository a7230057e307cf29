"""The verb that frees what nobody needs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import note, show
from hposvc.views.errors import OUT_OF_REACH
from hposvc.views.options import Shared

if TYPE_CHECKING:
    from hposvc.api import Sweeps
    from hposvc.leftovers import Leftover


@verb
@click.argument("sweep", metavar="[ID]", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be freed.")
@click.option("--compact", is_flag=True, help="Pack the journal of sweeps that have ended, too.")
def gc(shared: Shared, sweep: str | None, dry_run: bool, compact: bool) -> int:
    """Free what nobody needs any more: lost checkpoints, halves of them, folders of no sweep.

    With an ID: of that sweep alone. Sweeps with a driver at work are left as they are.
    """
    from hposvc import leftovers
    from hposvc.home import find
    from hposvc.views import disk

    sweeps = opened(shared)
    if sweep is None:
        names, found = [row.id for row in sweeps.journal.sweeps()], leftovers.of_home(sweeps)
    else:
        names, found = [find(sweeps.journal, sweep).id], []
    failures: list[str] = []
    for name in names:
        try:
            found += leftovers.of_sweep(sweeps, name)
        except OSError as error:
            failures.append(f"{name}: {error}")
    gone = []
    for one in found:
        try:
            if not dry_run:
                leftovers.free(one)
            gone.append(one)
        except OSError as error:
            failures.append(f"{one.path} stays: {error}")
    if compact:
        gone += _packed(sweeps, names, dry_run, failures)
    if not shared.json([{**asdict(one), "freed": not dry_run} for one in gone]):
        show(disk.leftovers(gone, freed=not dry_run))
    for failure in failures:
        note(failure)
    return OUT_OF_REACH if failures else 0


def _packed(
    sweeps: "Sweeps", names: Sequence[str], dry_run: bool, failures: list[str]
) -> list["Leftover"]:
    """Pack what has ended, each sweep at once or not at all; what that frees."""
    from hposvc import compacting
    from hposvc.lease import driver_state
    from hposvc.packed import Damaged
    from hposvc.store import StoreError

    gone = []
    for name in names:
        try:
            found = compacting.of_sweep(sweeps, name)
            if found is not None and (dry_run or compacting.pack(sweeps, name, found[1])):
                gone.append(found[0])
        except (Damaged, StoreError) as error:
            failures.append(f"{name} stays as it is: {error}")
    store = sweeps.journal.store
    if gone and not dry_run:
        try:
            if any(driver_state(store, row.id) == "alive" for row in sweeps.journal.sweeps()):
                note("a sweep runs, which would wait: gc once more after it makes the file smaller")
            else:
                store.vacuum()
        except StoreError as error:
            failures.append(f"{error}")
    return gone
