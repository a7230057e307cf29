"""Verbs that end what runs."""

from dataclasses import asdict
from typing import Literal

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import show
from hposvc.views.options import Shared, one_trial, sweep_id


@verb
@sweep_id
@click.option("--drain", is_flag=True, hidden=True)
def stop(shared: Shared, sweep: str, drain: bool) -> None:
    """End a sweep; running trials stop at their next report."""
    if drain:
        raise click.UsageError("stop --drain is not there yet; leave --drain out")
    steer(shared, "stop", sweep, None)


@verb
@sweep_id
@one_trial
def kill(shared: Shared, sweep: str, trial: str | None) -> None:
    """End a sweep, or one trial of it, at once."""
    steer(shared, "kill", sweep, trial)


def steer(shared: Shared, verb: Literal["stop", "kill"], sweep: str, trial: str | None) -> None:
    """Ask for it, and say who will do it."""
    from hposvc import api
    from hposvc.views import outcome

    steered = api.steer(opened(shared), sweep, verb, trial)
    if not shared.json({"verb": verb, "trial": trial, **asdict(steered)}):
        show(outcome.steered(steered, verb, trial))
