"""Verbs that validate a spec, run it as a sweep, and resume a sweep."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.commands.audit import answer
from hposvc.cli.exit_codes import NO_VALUE, OUT_OF_REACH
from hposvc.cli.options import Shared, ray_address, settings, spec_file, sweep_id
from hposvc.views.console import console, note, show

if TYPE_CHECKING:
    from hposvc.api import Record, Sweeps
    from hposvc.journal.journal import SweepRow

DEBUG = {
    "trials.max": 1,
    "trials.parallel": 1,
    "resources.workers": 1,
    "training.strategy": "single",
    "failure.user_retries": 0,
}


@verb
@spec_file
@settings
def validate(shared: Shared, spec: Path, sets: tuple[str, ...]) -> None:
    """Check a spec without running it."""
    from hposvc import api
    from hposvc import spec as specs
    from hposvc.spec.parsing import overrides
    from hposvc.views import tables

    checked = api.validate(spec, overrides.parse(sets))
    types = {
        name: {"type": type(domain).__name__.lower(), **asdict(domain)}
        for name, domain in checked.space.items()
    }
    if not shared.json({"spec": specs.dump(checked), "parameters": types}):
        show(tables.parameters(checked), tables.plan(checked))


@verb
@spec_file
@settings
@click.option("--id", "name", metavar="ID", help="Name the sweep; by default NAME-xxxxxx.")
@click.option("--debug", is_flag=True, help="Run one trial in this process, for debuggers.")
@ray_address
def run(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    name: str | None,
    debug: bool,
    address: str | None,
) -> int:
    """Run a sweep on this machine.

    After Ctrl-C or a crash, `hposvc resume ID` continues it from the last checkpoints.
    """
    from hposvc import api
    from hposvc import spec as specs
    from hposvc.spec.parsing import overrides

    checked = api.validate(spec, overrides.parse(sets))
    if debug:
        engine = {} if checked.engine.traits.simulated else {"engine": "local"}
        # The checked spec, not the file: standard input can be read only once.
        checked = api.validate(specs.dump(checked), {**DEBUG, **engine})
    checked.environment.reveal(os.environ)  # refuse a missing secret before the sweep begins
    sweeps = open_home(shared)
    row = api.create(sweeps, checked, name)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    return drive(shared, sweeps, row, address, show=not debug)


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
    from hposvc import api
    from hposvc.analysis import reproduction
    from hposvc.cli.foreground import driving

    sweeps = open_home(shared)
    before = api.load(sweeps, sweep)
    with driving(before.row.id) as view:
        record = api.resume(sweeps, before.row.id, [view], address, accept_code)
    repeated = reproduction.resumed(sweeps, before.row) if record.state.finished else None
    if repeated is not None:
        return answer(shared, repeated, record)
    code = conclude(shared, sweeps, record)
    return 0 if before.state.finished and code == NO_VALUE else code


def drive(
    shared: Shared, sweeps: "Sweeps", row: "SweepRow", address: str | None, show: bool = True
) -> int:
    """Run a recorded sweep to its end, print its result, and return the exit code."""
    from hposvc import api
    from hposvc.cli.foreground import driving
    from hposvc.operations import delete

    with delete.delete_if_refused(sweeps, row), driving(row.id) as view:
        record = api.drive(sweeps, row, [view] if show else [], address)
    return conclude(shared, sweeps, record)


def conclude(shared: Shared, sweeps: "Sweeps", record: "Record") -> int:
    """Print a sweep's failures and result, and return the exit code."""
    from hposvc.views import disk_full, result

    if record.failures():
        console(sys.stderr).print(result.failures(record.row.id, record.failures()))
    if not shared.json(record.status()):
        show(*result.summary(record, sweeps.home))
    if record.behind:
        note(result.describe_backlog(record))
    if record.state.state == "PAUSED" and record.state.full:
        note(disk_full.full_message(record.row.id, record.state))
        return OUT_OF_REACH
    if record.state.state == "PAUSED":
        note(f"{record.row.id} is paused; go on with: hposvc resume {record.row.id}")
    elif not record.state.front:
        return NO_VALUE
    return OUT_OF_REACH if record.behind else 0
