"""The verb that deletes files which no sweep needs."""

import click

from hposvc.cli.app import open_place, verb
from hposvc.cli.completion import complete_sweep
from hposvc.cli.options import Shared
from hposvc.errors import OUT_OF_REACH
from hposvc.views.console import note, show


@verb
@click.argument("sweep", metavar="[ID]", required=False, shell_complete=complete_sweep)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted, and delete nothing.")
@click.option("--compact", is_flag=True, help="Compress the journal of ended sweeps, too.")
@click.option("--logs", is_flag=True, help="Delete logs of ended sweeps' trials, too.")
def gc(shared: Shared, sweep: str | None, dry_run: bool, compact: bool, logs: bool) -> int:
    """Delete files that no sweep needs any more.

    These are orphaned and incomplete checkpoints, and folders of no sweep. With ID: of that sweep
    alone. Sweeps that are running are left as they are. Logs of the best and of failed trials stay.
    """
    from hposvc.remote import client
    from hposvc.views.gc import garbage_table

    freed = client.collect(open_place(shared), sweep, dry_run, compact, logs)
    if not shared.json(freed.data(dry_run)):
        show(garbage_table(freed.items, freed=not dry_run))
    if freed.vacuum_later:
        note("a sweep runs, which would wait: gc once more after it makes the file smaller")
    for failure in freed.failures:
        note(failure)
    return OUT_OF_REACH if freed.failures else 0
