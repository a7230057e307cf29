"""Verbs that show sweeps, their trials, results and logs."""

import sys
import time

import click

from hposvc.verbs.options import (
    Shared,
    find_server,
    home_of,
    open_place,
    open_sweep,
    optional_trial,
    sweep_id,
    verb,
)
from hposvc.views.console import emit, note, plain_log, show


@verb
@click.option("--project", metavar="NAME", help="List only sweeps of this project.")
@click.option("--tag", metavar="NAME[=VALUE]", help="List only sweeps with this tag.")
@click.option(
    "--since", metavar="TIME", help="List only sweeps since a date, or an age: 2025-11-01, 12h, 7d."
)
def ls(shared: Shared, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    from hposvc.remote import client
    from hposvc.views import formatting, tables

    try:
        created_after = None if since is None else formatting.parse_time(since, time.time())
    except ValueError as error:
        raise click.UsageError(f"--since {error}, or a date like 2025-11-01") from error
    rows = client.ls(open_place(shared), project, tag, created_after)
    if not shared.json(rows):
        show(tables.sweeps(rows))
        for row in rows:
            if row["why"]:
                note(f"{row['sweep']} can't be read: {row['why']}")


@verb
@sweep_id
def status(shared: Shared, sweep: str) -> None:
    """Show a sweep's progress, best trial and running trials."""
    from hposvc.views import dashboard, result

    record = open_sweep(shared, sweep).record()
    if not shared.json(record.status()):
        wide = sys.stdout.isatty()
        served = find_server(shared) is not None
        panel = dashboard.status_view(
            record.row.id, record.state, record.driver, wide, served, record.queue
        )
        show(panel, *result.mlflow(record, home_of(shared)))
        if record.undelivered:
            note(result.describe_undelivered(record))


@verb
@sweep_id
@click.option("--top", type=click.IntRange(1), metavar="N", help="List only the N best.")
@click.option("--sort", metavar="NAME", help="Sort by a column or parameter; -NAME: largest first.")
@click.option(
    "--where",
    multiple=True,
    metavar="CONDITION",
    help="List only trials like state=FAILED or 'lr>0.01'.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with all parameters.")
def trials(
    shared: Shared,
    sweep: str,
    top: int | None,
    sort: str | None,
    where: tuple[str, ...],
    as_csv: bool,
) -> None:
    """List the trials of a sweep."""
    from hposvc.operations import selection
    from hposvc.views import tables

    chosen = selection.trials(open_sweep(shared, sweep), where, sort, top)
    if as_csv:
        emit(chosen.csv())
    elif not shared.json(chosen.rows):
        state, cut_off = chosen.record.state, list[bool]()
        show(tables.trials(chosen.rows, state.spec, state.front, cut_off))
        if cut_off:
            command = shared.command(f"trials {sweep} --csv")
            note(f"some parameters have no room here; all: {command}")


@verb
@sweep_id
def best(shared: Shared, sweep: str) -> None:
    """Show the best trial, how sure it is, and its checkpoint; of several metrics the front."""
    from hposvc.analysis.verdict import sureness
    from hposvc.views import result

    record = open_sweep(shared, sweep).record()
    if shared.json(record.best()):
        return
    if front := record.front():
        show(result.best(front, record.state.spec))
        show(*sureness(record.state), *result.mlflow(record, home_of(shared)))
    if warning := record.warning():
        note(warning)


@verb
@sweep_id
@optional_trial
@click.option("--rank", type=click.IntRange(0), help="Print only what this rank wrote.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the trial has ended.")
def logs(
    shared: Shared,
    sweep: str,
    trial: str | None,
    rank: int | None,
    follow: bool,
) -> None:
    """Print the log of a trial.

    Without TRIAL: the logs of all failed trials, or if none failed, of the last trial.
    """
    from hposvc.views import result

    if follow and shared.output == "json":
        raise click.UsageError("--follow prints text; leave out -o json")
    if follow:
        for text in open_sweep(shared, sweep).follow_logs(trial, rank):
            emit(plain_log(text))
        return
    log_texts = open_sweep(shared, sweep).logs(trial, rank)
    errors = {}
    if not shared.json(log_texts):
        failures = {} if log_texts else open_sweep(shared, sweep).record().failures()
        errors = {name: text for name, text in failures.items() if trial in (None, name)}
        emit(plain_log(result.logs(log_texts) or result.errors(errors)))
    if errors:
        note("no log files; the record has these errors")
    elif not log_texts:
        note(f"no log files; `{shared.command(f'trials {sweep}')}` has what is known")
    elif not any(log["text"] for log in log_texts):
        note(f"{', '.join(dict.fromkeys(log['trial'] for log in log_texts))} printed nothing")
