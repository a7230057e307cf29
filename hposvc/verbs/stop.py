"""`stop`: end a sweep or a trial at its next report, or let a sweep run out."""

import click

from hposvc.verbs.foreground import steer
from hposvc.verbs.options import Shared, optional_trial, sweep_id, verb


@verb
@sweep_id
@optional_trial
@click.option("--drain", is_flag=True, help="Start no new trials, and let running ones finish.")
def stop_command(shared: Shared, sweep: str, trial: str | None, drain: bool) -> None:
    """Stop a sweep or a trial at the next report.

    Running trials keep their last checkpoint.
    """
    if drain and trial is not None:
        raise click.UsageError("--drain is of a whole sweep; leave out --drain or TRIAL")
    steer(shared, "drain" if drain else "stop", sweep, trial)
