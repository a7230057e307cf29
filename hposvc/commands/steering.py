"""Verbs that end what runs."""

from dataclasses import asdict
from typing import Literal

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import show
from hposvc.views.options import Shared, on_cluster, one_trial, sweep_id


@verb
@sweep_id
@click.option("--drain", is_flag=True, hidden=True)
@on_cluster
def stop(shared: Shared, sweep: str, drain: bool, address: str | None) -> None:
    """End a sweep; running trials stop at their next report."""
    if drain:
        raise click.UsageError("stop --drain is not there yet; leave --drain out")
    steer(shared, "stop", sweep, None, address)


@verb
@sweep_id
@one_trial
@on_cluster
def kill(shared: Shared, sweep: str, trial: str | None, address: str | None) -> None:
    """End a sweep, or one trial of it, at once."""
    steer(shared, "kill", sweep, trial, address)


def steer(
    shared: Shared,
    verb: Literal["stop", "kill"],
    sweep: str,
    trial: str | None,
    address: str | None,
) -> None:
    """Ask for it, and say who will do it."""
    from hposvc.remote import following
    from hposvc.views import outcome

    steered = following.steer(opened(shared), sweep, verb, trial, address)
    if not shared.json({"verb": verb, "trial": trial, **asdict(steered)}):
        show(outcome.steered(steered, verb, trial))
