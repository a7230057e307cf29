"""Verbs that pause, end, extend and renew what runs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.commands.group import opened, verb
from hposvc.commands.sweeping import drive
from hposvc.views.console import note, show
from hposvc.views.options import Shared, on_cluster, one_trial, ray_address, settings, sweep_id

if TYPE_CHECKING:
    from hposvc.api import Record
    from hposvc.events import Verb

NOTHING: Mapping[str, object] = {}


@verb
@sweep_id
@on_cluster
def pause(shared: Shared, sweep: str, address: str | None) -> None:
    """Give all slots back; `resume` goes on with the same trials."""
    steer(shared, "pause", sweep, None, address)


@verb
@sweep_id
@one_trial
@click.option("--drain", is_flag=True, help="Begin no new trials, and let the others finish.")
@on_cluster
def stop(shared: Shared, sweep: str, trial: str | None, drain: bool, address: str | None) -> None:
    """End a sweep, or one trial of it; running trials stop at their next report."""
    if drain and trial is not None:
        raise click.UsageError("--drain is of a whole sweep; leave out --drain or TRIAL")
    steer(shared, "drain" if drain else "stop", sweep, trial, address)


@verb
@sweep_id
@one_trial
@on_cluster
def kill(shared: Shared, sweep: str, trial: str | None, address: str | None) -> None:
    """End a sweep, or one trial of it, at once."""
    steer(shared, "kill", sweep, trial, address)


@verb
@sweep_id
@click.option("--trials", type=int, metavar="N", help="So many more than it was to have.")
@settings
@ray_address
def extend(
    shared: Shared, sweep: str, trials: int | None, sets: tuple[str, ...], address: str | None
) -> int:
    """Move the limits of a sweep: more trials, longer ones, more budget, more at once.

    One that runs has them at once. One that has ended goes on, here.
    """
    from hposvc import api, steering
    from hposvc.reading import overrides

    record = api.load(opened(shared), sweep)
    changes = dict(overrides.parse(sets))
    if trials is not None:
        changes |= steering.more_trials(record, trials)
    return renew(shared, "extend", record, None, changes, address)


@verb
@sweep_id
@one_trial
@ray_address
def retry(shared: Shared, sweep: str, trial: str | None, address: str | None) -> int:
    """Try failed trials again, from their last checkpoints; without TRIAL all of them."""
    from hposvc import api

    return renew(shared, "retry", api.load(opened(shared), sweep), trial, NOTHING, address)


@verb
@sweep_id
@settings
@click.option("--id", "name", metavar="ID", help="What to call the new sweep.")
@ray_address
def fork(
    shared: Shared, sweep: str, sets: tuple[str, ...], name: str | None, address: str | None
) -> int:
    """Run a new sweep with other settings, which knows what this one has learned."""
    from hposvc import steering
    from hposvc.reading import overrides

    sweeps = opened(shared)
    row = steering.fork(sweeps, sweep, overrides.parse(sets), name)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    return drive(shared, sweeps, row, address)


@verb
@sweep_id
def rm(shared: Shared, sweep: str) -> None:
    """Delete a sweep: its journal, checkpoints and logs. What MLflow has of it stays."""
    from hposvc import removing

    removed = removing.remove(opened(shared), sweep)
    if not shared.json({"removed": removed}):
        show(f"{removed} is removed; MLflow keeps its runs")


def steer(shared: Shared, verb: "Verb", sweep: str, trial: str | None, address: str | None) -> None:
    """Ask for it, and say who will do it."""
    from hposvc.remote import following
    from hposvc.views import outcome

    steered = following.steer(opened(shared), sweep, verb, trial, address=address)
    if not shared.json({"verb": verb, "trial": trial, **asdict(steered)}):
        show(outcome.steered(steered, verb, trial))


def renew(
    shared: Shared,
    verb: "Verb",
    record: "Record",
    trial: str | None,
    changes: Mapping[str, object],
    address: str | None,
) -> int:
    """Ask for it; where the sweep has ended, go on with it."""
    from hposvc import steering
    from hposvc.views import outcome

    sweeps, over = opened(shared), record.state.finished
    steered = steering.steer(sweeps, record.row.id, verb, trial, changes)
    if over:
        return drive(shared, sweeps, record.row, address)
    answer = {"verb": verb, "trial": trial, "changes": dict(changes), **asdict(steered)}
    if not shared.json(answer):
        show(outcome.steered(steered, verb, trial))
    return 0
