"""Verbs that show what sweeps have come to."""

import sys
import time
from dataclasses import asdict

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import emit, note, show
from hposvc.views.options import Shared, one_trial, sweep_id


@verb
@click.option("--project")
@click.option("--tag", metavar="NAME[=VALUE]")
@click.option("--since", metavar="TIME", help="A date, or how long ago: 2025-11-01, 12h, 7d.")
def ls(shared: Shared, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    from hposvc import api
    from hposvc.views import table, words

    try:
        begin = None if since is None else words.moment(since, time.time())
    except ValueError as error:
        raise click.UsageError(f"--since {error}, or a date like 2025-11-01") from error
    listed = api.ls(opened(shared), project, tag, begin)
    if not shared.json(listed):
        show(table.sweeps(listed))


@verb
@sweep_id
def status(shared: Shared, sweep: str) -> None:
    """Show a sweep: how far it is, the best so far, what runs."""
    from hposvc import api
    from hposvc.views import panel

    record = api.load(opened(shared), sweep)
    if not shared.json(record.status()):
        wide = sys.stdout.isatty()
        show(panel.at_rest(record.row.id, record.state, record.driver, wide))


@verb
@sweep_id
def trials(shared: Shared, sweep: str) -> None:
    """List the trials of a sweep."""
    from hposvc import api
    from hposvc.views import table

    record = api.load(opened(shared), sweep)
    listed = record.trials()
    if not shared.json(listed):
        show(table.trials(listed, record.state.spec, record.state.best))


@verb
@sweep_id
def best(shared: Shared, sweep: str) -> None:
    """Show the best trial, and where its checkpoint lies."""
    from hposvc import api
    from hposvc.views import outcome

    record = api.load(opened(shared), sweep)
    found = record.best()
    if shared.json(found):
        return
    if found is None:
        note(f"no trial of {record.row.id} has a value yet")
    else:
        show(outcome.best(found, record.state.spec))


@verb
@sweep_id
@one_trial
@click.option("--rank", type=click.IntRange(0), help="Of the trial's workers; else all.")
def logs(shared: Shared, sweep: str, trial: str | None, rank: int | None) -> None:
    """Print what a trial's workers wrote.

    Without TRIAL: of all trials that failed, or if none did, of the last one.
    """
    from hposvc import api
    from hposvc.views import outcome

    found = [
        {**asdict(log), "path": str(log.path), "text": log.path.read_text(errors="replace")}
        for log in api.logs(opened(shared), sweep, trial, rank)
    ]
    if not shared.json(found):
        emit(outcome.logs(found))
    if not found:
        note(f"no log files; `hposvc trials {sweep}` has what is known")
