"""`submit`: submit a sweep to a server; hposvc/remote/server/submission.py does it."""

from dataclasses import asdict
from pathlib import Path

import click

from hposvc.remote import cluster_server
from hposvc.verbs.foreground import conclude, driving
from hposvc.verbs.options import Shared, read_submission, settings, spec_file, verb
from hposvc.views.console import note, show


@verb
@spec_file
@settings
@click.option(
    "--address",
    envvar="RAY_API_SERVER_ADDRESS",
    metavar="URL",
    help="Submit to the dashboard at http://HEAD:8265; by default this home's own cluster.",
)
@click.option(
    "--id", "name", metavar="ID", help="Name the sweep; by default a hash of spec and code."
)
@click.option("--new", is_flag=True, help="Start another sweep even if the cluster has this one.")
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print the result.")
def submit_command(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    address: str | None,
    name: str | None,
    new: bool,
    wait: bool,
) -> int:
    """Run a sweep on a Ray cluster, or on a server.

    Submitting the same sweep again attaches to it. The first submit to a cluster starts a server
    there, which ray+http://HEAD:8265 names for the other verbs.

    The cluster's token is RAY_AUTH_TOKEN, the server's HPOSVC_TOKEN. The files of the spec's folder
    are sent along, except those that a .gitignore names.
    """
    if new and name is not None:
        raise click.UsageError("--new makes an id of its own; leave out --id or --new")
    checked = read_submission(spec, sets)
    server = shared.find_server() or cluster_server.find_or_start(shared.find_home(), address, note)
    accepted = server.submit(checked, name, new, note)
    if not wait:
        if not shared.json(asdict(accepted)):
            show(*accepted.describe())
        return 0
    note(f"{accepted.sweep}: Ctrl-C ends only the waiting; {accepted.describe()[-1]}")
    return conclude(shared, server.wait(accepted.sweep, driving), server.home)
