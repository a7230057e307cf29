"""`exclude`: let a trial count no longer, as its data was wrong."""

import click

from hposvc.events import BECAUSE
from hposvc.verbs.foreground import steer
from hposvc.verbs.options import Shared, sweep_id, trial_id, verb


@verb
@sweep_id
@trial_id
@click.option("--because", required=True, metavar="TEXT", help="Say why, for the record.")
def exclude_command(shared: Shared, sweep: str, trial: str, because: str) -> None:
    """Let a trial count no longer; it stays in the record.

    It is stopped if it runs. No best trial, search, rung, report or later sweep counts it.
    """
    steer(shared, "exclude", sweep, trial, {BECAUSE: because})
