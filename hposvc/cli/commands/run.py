"""Verbs that run a spec as a sweep, and resume a sweep."""

from functools import partial
from pathlib import Path

import click

from hposvc.errors import fail
from hposvc.verbs.options import (
    Shared,
    home_of,
    open_place,
    ray_address,
    read_spec,
    settings,
    spec_file,
    sweep_id,
    verb,
)


@verb
@spec_file
@settings
@click.option("--id", "name", metavar="ID", help="Name the sweep; by default NAME-xxxxxx.")
@click.option("--resume", "goes_on", is_flag=True, help="Continue the sweep if the ID exists.")
@click.option("--debug", is_flag=True, help="Run one trial in this process, for debuggers.")
@ray_address
def run(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    name: str | None,
    goes_on: bool,
    debug: bool,
    address: str | None,
) -> int:
    """Run a sweep on this machine, or on the server's.

    After Ctrl-C or a crash, `hposvc resume ID` continues it from the last checkpoints. With --id
    and --resume the same command begins the sweep or continues it.
    """
    from hposvc.remote import client
    from hposvc.verbs.foreground import conclude, conclude_trained, starting

    if goes_on and (name is None or debug):
        message = "runs one trial of a new sweep" if debug else "needs the sweep's --id"
        raise fail(message, "--debug" if debug else "--resume")
    checked = read_spec(spec, sets)
    watching = partial(starting, live=not debug)
    if goes_on and name is not None:
        trained = client.run_or_resume(open_place(shared), checked, name, address, watching)
        return conclude_trained(shared, trained, home_of(shared))
    record = client.run(open_place(shared), checked, name, address, watching, debug)
    return conclude(shared, record, home_of(shared))


@verb
@sweep_id
@click.option(
    "--accept-code", is_flag=True, help="Continue even if the trainable's code has changed."
)
@ray_address
def resume(shared: Shared, sweep: str, accept_code: bool, address: str | None) -> int:
    """Continue an interrupted or paused sweep.

    For a sweep that has ended, only MLflow is brought up to date.
    """
    from hposvc.remote import client
    from hposvc.verbs.foreground import conclude_trained, driving

    trained = client.resume(open_place(shared), sweep, accept_code, address, driving)
    return conclude_trained(shared, trained, home_of(shared))
