"""Verbs that take something out of a sweep."""

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import emit
from hposvc.views.options import Shared, on_cluster, sweep_id


@verb
@sweep_id
@click.option("--schedule", is_flag=True, help="The best trial's values over time, as a spec.")
@on_cluster
def export(shared: Shared, sweep: str, schedule: bool, address: str | None) -> None:
    """Write the schedule by which the best trial can be trained again: a spec for `run`."""
    from hposvc import lineage
    from hposvc.home import NotFound
    from hposvc.remote import following
    from hposvc.views import schedule as view

    if not schedule:
        message = "a sweep's export is not there yet; hposvc export ID --schedule is"
        raise click.ClickException(message)
    record = following.record(opened(shared), sweep, address)
    identifier, state = record.row.id, record.state
    line = lineage.winner(state)
    if not line:
        raise NotFound(f"{identifier}: no trial has a value, so there is no schedule")
    spec = lineage.replay(identifier, state.spec, line)
    if not shared.json(spec):
        emit(view.text(identifier, state, line, spec))
