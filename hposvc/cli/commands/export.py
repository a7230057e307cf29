"""The verb that exports a schedule from a sweep."""

import click

from hposvc.cli.app import open_sweep, verb
from hposvc.cli.options import Shared, cluster_address, sweep_id
from hposvc.views.console import emit


@verb
@sweep_id
@click.option("--schedule", is_flag=True, help="Write the best trial's values over time as a spec.")
@cluster_address
def export(shared: Shared, sweep: str, schedule: bool, address: str | None) -> None:
    """Write the best trial's schedule as a spec for `run`."""
    from hposvc.analysis import lineage
    from hposvc.views.schedule import text

    if not schedule:
        message = "a sweep's export is not there yet; hposvc export ID --schedule is"
        raise click.ClickException(message)
    best = lineage.best_schedule(open_sweep(shared, sweep, address))
    if not shared.json(best.spec):
        emit(text(best.sweep, best.state, best.segments, best.spec))
