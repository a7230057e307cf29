"""`agent`: take trials of a sweep from a server; hposvc/remote/agent/ does it."""

import click

from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import note


@verb
@sweep_id
@click.option("--count", type=click.IntRange(1), help="End after this many orders of trials.")
@click.option("--name", help="Be known to the server by this name; by default the Slurm job's.")
@click.option(
    "--grace",
    default=100.0,
    show_default=True,
    help="Seconds from SIGTERM until the ranks are killed.",
)
def agent_command(
    shared: Shared, sweep: str, count: int | None, name: str | None, grace: float
) -> None:
    """Train trials of a server's sweep here, without Ray: on a laptop, in a pod, in Slurm."""
    from hposvc.remote.agent import start

    server = shared.find_server()
    if server is None:
        raise click.UsageError("name the server: --server http://HOST:8900, or HPOSVC_SERVER")
    ended = start.take_trials(server.http, sweep, count, name, grace, note)
    note(f"{ended} orders ended here")
