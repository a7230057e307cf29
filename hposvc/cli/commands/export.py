"""The verb that exports a schedule from a sweep."""

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.options import Shared, cluster_address, sweep_id
from hposvc.views.console import emit


@verb
@sweep_id
@click.option("--schedule", is_flag=True, help="Write the best trial's values over time as a spec.")
@cluster_address
def export(shared: Shared, sweep: str, schedule: bool, address: str | None) -> None:
    """Write the best trial's schedule as a spec for `run`."""
    from hposvc.analysis import lineage
    from hposvc.journal.home import NotFound
    from hposvc.remote import client
    from hposvc.views.schedule import text

    if not schedule:
        message = "a sweep's export is not there yet; hposvc export ID --schedule is"
        raise click.ClickException(message)
    record = client.record(open_home(shared), sweep, address)
    identifier, state = record.row.id, record.state
    segments = lineage.winner_lineage(state)
    if not segments:
        raise NotFound(f"{identifier}: no trial has a value, so there is no schedule")
    spec = lineage.replay_spec(identifier, state.spec, segments)
    if not shared.json(spec):
        emit(text(identifier, state, segments, spec))
