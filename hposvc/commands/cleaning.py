"""The verb that frees what nobody needs."""

from dataclasses import asdict

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import note, show
from hposvc.views.errors import OUT_OF_REACH
from hposvc.views.options import Shared


@verb
@click.argument("sweep", metavar="[ID]", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would be freed.")
def gc(shared: Shared, sweep: str | None, dry_run: bool) -> int:
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
    if not shared.json([{**asdict(one), "freed": not dry_run} for one in gone]):
        show(disk.leftovers(gone, freed=not dry_run))
    for failure in failures:
        note(failure)
    return OUT_OF_REACH if failures else 0
