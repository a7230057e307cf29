"""Verbs that pause, stop, extend, retry, fork and remove sweeps."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.commands.run import drive
from hposvc.cli.options import (
    Shared,
    cluster_address,
    optional_trial,
    ray_address,
    settings,
    sweep_id,
)
from hposvc.views.console import note, show

if TYPE_CHECKING:
    from hposvc.api import Record
    from hposvc.events import Verb

NOTHING: Mapping[str, object] = {}


@verb
@sweep_id
@cluster_address
def pause(shared: Shared, sweep: str, address: str | None) -> None:
    """Pause a sweep, and free what it holds, until `resume`."""
    steer(shared, "pause", sweep, None, address)


@verb
@sweep_id
@optional_trial
@click.option("--drain", is_flag=True, help="Start no new trials, and let running ones finish.")
@cluster_address
def stop(shared: Shared, sweep: str, trial: str | None, drain: bool, address: str | None) -> None:
    """Stop a sweep or a trial at the next report.

    Running trials keep their last checkpoint.
    """
    if drain and trial is not None:
        raise click.UsageError("--drain is of a whole sweep; leave out --drain or TRIAL")
    steer(shared, "drain" if drain else "stop", sweep, trial, address)


@verb
@sweep_id
@optional_trial
@cluster_address
def kill(shared: Shared, sweep: str, trial: str | None, address: str | None) -> None:
    """End a sweep or a trial at once."""
    steer(shared, "kill", sweep, trial, address)


@verb
@sweep_id
@click.option("--trials", type=int, metavar="N", help="Add N trials to the limit.")
@settings
@ray_address
def extend(
    shared: Shared, sweep: str, trials: int | None, sets: tuple[str, ...], address: str | None
) -> int:
    """Give a sweep more or longer trials, or more budget.

    A running sweep takes it at once. One that has ended continues here.
    """
    from hposvc import api
    from hposvc.operations import requests
    from hposvc.spec.parsing import overrides

    record = api.load(open_home(shared), sweep)
    changes = dict(overrides.parse(sets))
    if trials is not None:
        changes = requests.more_trials(changes, trials)
    return renew(shared, "extend", record, None, changes, address)


@verb
@sweep_id
@optional_trial
@ray_address
def retry(shared: Shared, sweep: str, trial: str | None, address: str | None) -> int:
    """Train failed trials again, from their last checkpoints.

    Without TRIAL: all of them.
    """
    from hposvc import api

    return renew(shared, "retry", api.load(open_home(shared), sweep), trial, NOTHING, address)


@verb
@sweep_id
@settings
@click.option("--id", "name", metavar="ID", help="Name the new sweep.")
@ray_address
def fork(
    shared: Shared, sweep: str, sets: tuple[str, ...], name: str | None, address: str | None
) -> int:
    """Run a new sweep that learns from this one's trials.

    --set changes its settings; the others are those of this sweep.
    """
    from hposvc.operations import requests
    from hposvc.spec.parsing import overrides

    sweeps = open_home(shared)
    row = requests.fork(sweeps, sweep, overrides.parse(sets), name)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    return drive(shared, sweeps, row, address)


@verb
@sweep_id
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rm(shared: Shared, sweep: str, yes: bool) -> None:
    """Delete a sweep: its journal, checkpoints and logs. MLflow keeps its runs.

    Files in its folder that the sweep did not write stay, too. At a terminal, it asks first.
    """
    from hposvc.journal.home import find
    from hposvc.operations import delete

    sweeps = open_home(shared)
    name = find(sweeps.journal, sweep).id
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"remove {name}, with its checkpoints and logs?", abort=True, err=True)
    removed = delete.remove(sweeps, name)
    if not shared.json({"removed": removed.sweep, "left": removed.left or None}):
        show(f"{removed.sweep} is removed; MLflow keeps its runs")
    if removed.left:
        note(f"{removed.left} stays: there is more in it than {removed.sweep} wrote")


def steer(shared: Shared, verb: "Verb", sweep: str, trial: str | None, address: str | None) -> None:
    """Record the request, and print who will carry it out."""
    from hposvc.remote import client
    from hposvc.views import result

    receipt = client.steer(open_home(shared), sweep, verb, trial, address=address)
    if not shared.json({"verb": verb, "trial": trial, **asdict(receipt)}):
        show(result.describe_receipt(receipt, verb, trial))


def renew(
    shared: Shared,
    verb: "Verb",
    record: "Record",
    trial: str | None,
    changes: Mapping[str, object],
    address: str | None,
) -> int:
    """Record the request; if the sweep has ended, continue it here. Return the exit code."""
    from hposvc.operations import requests
    from hposvc.views import result

    sweeps, row = open_home(shared), record.row
    receipt = requests.renew(
        sweeps, row.id, verb, trial, changes, lambda: drive(shared, sweeps, row, address)
    )
    if isinstance(receipt, int):
        return receipt
    data = {"verb": verb, "trial": trial, "changes": dict(changes), **asdict(receipt)}
    if not shared.json(data):
        show(result.describe_receipt(receipt, verb, trial))
    return 0
