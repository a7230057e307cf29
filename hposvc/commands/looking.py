"""Verbs that show what sweeps have come to."""

import sys
import time

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import emit, note, show
from hposvc.views.options import Shared, on_cluster, one_trial, sweep_id


@verb
@click.option("--project")
@click.option("--tag", metavar="NAME[=VALUE]")
@click.option("--since", metavar="TIME", help="A date, or how long ago: 2025-11-01, 12h, 7d.")
def ls(shared: Shared, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    from hposvc import api
    from hposvc.remote import following
    from hposvc.views import table, words

    try:
        begin = None if since is None else words.moment(since, time.time())
    except ValueError as error:
        raise click.UsageError(f"--since {error}, or a date like 2025-11-01") from error
    sweeps = opened(shared)
    listed = api.ls(sweeps, project, tag, begin)
    if not shared.json(listed):
        show(table.sweeps(listed))
        for one in following.away(sweeps):
            note(f"{one.sweep} is on {one.address}: hposvc status {one.sweep}")


@verb
@sweep_id
@on_cluster
def status(shared: Shared, sweep: str, address: str | None) -> None:
    """Show a sweep: how far it is, the best so far, what runs."""
    from hposvc.remote import following
    from hposvc.views import panel

    record = following.record(opened(shared), sweep, address)
    if not shared.json(record.status()):
        wide = sys.stdout.isatty()
        show(panel.at_rest(record.row.id, record.state, record.driver, wide))


@verb
@sweep_id
@on_cluster
def trials(shared: Shared, sweep: str, address: str | None) -> None:
    """List the trials of a sweep."""
    from hposvc.remote import following
    from hposvc.views import table

    record = following.record(opened(shared), sweep, address)
    listed = record.trials()
    if not shared.json(listed):
        show(table.trials(listed, record.state.spec, record.state.front))


@verb
@sweep_id
@on_cluster
def best(shared: Shared, sweep: str, address: str | None) -> None:
    """Show the best trial, or the front of several metrics, and where checkpoints lie."""
    from hposvc.remote import following
    from hposvc.views import outcome

    record = following.record(opened(shared), sweep, address)
    if shared.json(record.best()):
        return
    found = record.front()
    if found:
        show(outcome.best(found, record.state.spec))
    else:
        within = " within the limits" if record.state.spec.limits else ""
        note(f"no trial of {record.row.id} has a value{within} yet")


@verb
@sweep_id
@one_trial
@click.option("--rank", type=click.IntRange(0), help="Of the trial's workers; else all.")
@on_cluster
def logs(
    shared: Shared, sweep: str, trial: str | None, rank: int | None, address: str | None
) -> None:
    """Print what a trial's workers wrote.

    Without TRIAL: of all trials that failed, or if none did, of the last one.
    """
    from hposvc.remote import following
    from hposvc.views import outcome

    found = following.logs(opened(shared), sweep, trial, rank, address)
    if not shared.json(found):
        emit(outcome.logs(found))
    if not found:
        note(f"no log files; `hposvc trials {sweep}` has what is known")
