"""Verbs that pause, stop, extend, retry and fork sweeps."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.verbs.options import (
    Shared,
    home_of,
    open_place,
    optional_trial,
    ray_address,
    read_settings,
    settings,
    sweep_id,
    verb,
)
from hposvc.views.console import show

if TYPE_CHECKING:
    from hposvc.events import Verb
    from hposvc.open_sweep import Record
    from hposvc.operations.requests import RequestReceipt


@verb
@sweep_id
def pause(shared: Shared, sweep: str) -> None:
    """Pause a sweep, and free what it holds, until `resume`."""
    steer(shared, "pause", sweep, None)


@verb
@sweep_id
@optional_trial
@click.option("--drain", is_flag=True, help="Start no new trials, and let running ones finish.")
def stop(shared: Shared, sweep: str, trial: str | None, drain: bool) -> None:
    """Stop a sweep or a trial at the next report.

    Running trials keep their last checkpoint.
    """
    if drain and trial is not None:
        raise click.UsageError("--drain is of a whole sweep; leave out --drain or TRIAL")
    steer(shared, "drain" if drain else "stop", sweep, trial)


@verb
@sweep_id
@optional_trial
def kill(shared: Shared, sweep: str, trial: str | None) -> None:
    """End a sweep or a trial at once."""
    steer(shared, "kill", sweep, trial)


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
    from hposvc.remote import client
    from hposvc.verbs.foreground import driving

    limits = read_settings(sets)
    answer = client.extend(open_place(shared), sweep, trials, limits, address, driving)
    return report(shared, answer, "extend", None)


@verb
@sweep_id
@optional_trial
@ray_address
def retry(shared: Shared, sweep: str, trial: str | None, address: str | None) -> int:
    """Train failed trials again, from their last checkpoints.

    Without TRIAL: all of them.
    """
    from hposvc.remote import client
    from hposvc.verbs.foreground import driving

    answer = client.retry(open_place(shared), sweep, trial, address, driving)
    return report(shared, answer, "retry", trial)


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
    from hposvc.remote import client
    from hposvc.verbs.foreground import conclude, starting

    changes = read_settings(sets)
    record = client.fork(open_place(shared), sweep, changes, name, address, starting)
    return conclude(shared, record, home_of(shared))


def steer(shared: Shared, verb: "Verb", sweep: str, trial: str | None) -> None:
    """Record the request, and print who will carry it out."""
    from hposvc.remote import client

    receipt = client.steer(open_place(shared), sweep, verb, trial)
    report(shared, receipt, verb, trial)


def report(
    shared: Shared, answer: "Record | RequestReceipt", verb: "Verb", trial: str | None
) -> int:
    """Print the result of a sweep that went on here, or who carries out the request."""
    from hposvc.open_sweep import Record
    from hposvc.verbs.foreground import conclude
    from hposvc.views import result

    if isinstance(answer, Record):
        return conclude(shared, answer, home_of(shared))
    if not shared.json({"verb": verb, "trial": trial, **asdict(answer)}):
        show(result.describe_receipt(answer, verb, trial))
    return 0
