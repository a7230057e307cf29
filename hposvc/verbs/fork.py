"""`fork`: run a new sweep with the spec of another, from whose trials it learns."""

import click

from hposvc.verbs.foreground import conclude, relaunched, starting
from hposvc.verbs.options import Shared, ray_address, read_settings, settings, sweep_id, verb


@verb
@sweep_id
@settings
@click.option("--id", "name", metavar="ID", help="Name the new sweep.")
@ray_address
def fork_command(
    shared: Shared, sweep: str, sets: tuple[str, ...], name: str | None, address: str | None
) -> int:
    """Run a new sweep that learns from this one's trials.

    --set changes its settings; the others are those of this sweep.
    """
    changes = read_settings(sets)
    place = shared.open_place()
    watching = relaunched(shared, place, address, starting)
    record = place.fork(sweep, changes, name, address, watching)
    return conclude(shared, record, shared.find_home())
