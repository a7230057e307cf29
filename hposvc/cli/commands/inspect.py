"""Verbs that show sweeps, their trials, results and logs."""

import sys
import time

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.options import Shared, cluster_address, optional_trial, sweep_id
from hposvc.views.console import emit, note, show


@verb
@click.option("--project", metavar="NAME", help="List only sweeps of this project.")
@click.option("--tag", metavar="NAME[=VALUE]", help="List only sweeps with this tag.")
@click.option(
    "--since", metavar="TIME", help="List only sweeps since a date, or an age: 2025-11-01, 12h, 7d."
)
def ls(shared: Shared, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    from hposvc import api
    from hposvc.remote import client, submit
    from hposvc.views import formatting, tables

    try:
        created_after = None if since is None else formatting.parse_time(since, time.time())
    except ValueError as error:
        raise click.UsageError(f"--since {error}, or a date like 2025-11-01") from error
    sweeps = open_home(shared)
    listed = api.ls(sweeps, project, tag, created_after)
    if not shared.json(listed):
        show(tables.sweeps(listed))
        for sent in client.remote_sweeps(sweeps):
            note(f"{sent.sweep} is on {sent.address}: hposvc status {sent.sweep}")
        for row in listed:
            if row["why"]:
                note(f"{row['sweep']} can't be read: {row['why']}")
    for file, why in submit.unreadable(sweeps.home).items():
        note(f"{file} can't be read, so where that sweep was submitted to is not known: {why}")


@verb
@sweep_id
@cluster_address
def status(shared: Shared, sweep: str, address: str | None) -> None:
    """Show a sweep's progress, best trial and running trials."""
    from hposvc.remote import client
    from hposvc.views import dashboard, result

    sweeps = open_home(shared)
    record = client.record(sweeps, sweep, address)
    if not shared.json(record.status()):
        wide = sys.stdout.isatty()
        panel = dashboard.status_view(record.row.id, record.state, record.driver, wide)
        show(panel, *result.mlflow(record, sweeps.home))


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
@cluster_address
def trials(
    shared: Shared,
    sweep: str,
    top: int | None,
    sort: str | None,
    where: tuple[str, ...],
    as_csv: bool,
    address: str | None,
) -> None:
    """List the trials of a sweep."""
    from hposvc.operations import selection
    from hposvc.remote import client
    from hposvc.views import tables

    record = client.record(open_home(shared), sweep, address)
    spec = record.state.spec
    listed = selection.choose(record.trials(), spec, where, sort, top)
    if as_csv:
        emit(selection.table(listed, spec))
    elif not shared.json(listed):
        cut_off: list[bool] = []
        show(tables.trials(listed, spec, record.state.front, cut_off))
        if cut_off:
            note(f"some parameters have no room here; all: hposvc trials {record.row.id} --csv")


@verb
@sweep_id
@cluster_address
def best(shared: Shared, sweep: str, address: str | None) -> None:
    """Show the best trial and its checkpoint; of several metrics the Pareto front."""
    from hposvc.remote import client
    from hposvc.state import summary
    from hposvc.views import result

    sweeps = open_home(shared)
    record = client.record(sweeps, sweep, address)
    if shared.json(record.best()):
        return
    front = record.front()
    if front:
        show(result.best(front, record.state.spec), *result.mlflow(record, sweeps.home))
        if warning := summary.untrained(record.row.id, record.state):
            note(warning)
    else:
        within = " within the limits" if record.state.spec.limits else ""
        note(f"no trial of {record.row.id} has a value{within} yet")


@verb
@sweep_id
@optional_trial
@click.option("--rank", type=click.IntRange(0), help="Print only what this rank wrote.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the trial has ended.")
@cluster_address
def logs(
    shared: Shared,
    sweep: str,
    trial: str | None,
    rank: int | None,
    follow: bool,
    address: str | None,
) -> None:
    """Print the log of a trial.

    Without TRIAL: the logs of all failed trials, or if none failed, of the last trial.
    """
    from hposvc.remote import client
    from hposvc.views import result

    if follow and (address is not None or shared.output == "json"):
        raise click.UsageError("--follow reads files of this machine, and prints text")
    if follow:
        for text in client.follow(open_home(shared), sweep, trial, rank):
            emit(text)
        return
    log_texts = client.logs(open_home(shared), sweep, trial, rank, address)
    if not shared.json(log_texts):
        emit(result.logs(log_texts))
    if not log_texts:
        note(f"no log files; `hposvc trials {sweep}` has what is known")
    elif not any(log["text"] for log in log_texts):
        note(f"{', '.join(dict.fromkeys(log['trial'] for log in log_texts))} printed nothing")
