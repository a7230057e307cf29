"""Verbs that check a sweep, run it, and go on with it."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.commands.explaining import answer
from hposvc.commands.group import opened, verb
from hposvc.views.console import console, note, show
from hposvc.views.errors import NO_VALUE, OUT_OF_REACH
from hposvc.views.options import Shared, ray_address, settings, spec_file, sweep_id

if TYPE_CHECKING:
    from hposvc.api import Record, Sweeps
    from hposvc.journal import SweepRow

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
    """Check all that can be known of a spec without running it."""
    from hposvc import api
    from hposvc import spec as specs
    from hposvc.reading import overrides
    from hposvc.views import table

    checked = api.validate(spec, overrides.parse(sets))
    types = {
        name: {"type": type(domain).__name__.lower(), **asdict(domain)}
        for name, domain in checked.space.items()
    }
    if not shared.json({"spec": specs.dump(checked), "parameters": types}):
        show(table.parameters(checked), table.plan(checked))


@verb
@spec_file
@settings
@click.option("--id", "name", metavar="ID", help="What to call the sweep; else NAME-xxxxxx.")
@click.option("--debug", is_flag=True, help="One trial in this process, for debuggers.")
@ray_address
def run(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    name: str | None,
    debug: bool,
    address: str | None,
) -> int:
    """Run a sweep to its end, here. After Ctrl-C or a crash, `resume` goes on with it."""
    from hposvc import api
    from hposvc.reading import overrides

    values = overrides.parse(sets)
    checked = api.validate(spec, values)
    if debug:
        engine = {} if checked.engine.type == "simulate" else {"engine": "local"}
        checked = api.validate(spec, {**values, **DEBUG, **engine})
    checked.environment.reveal(os.environ)  # a secret that is missing is told before it begins
    sweeps = opened(shared)
    row = api.create(sweeps, checked, name)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    return drive(shared, sweeps, row, address, show=not debug)


@verb
@sweep_id
@click.option("--accept-code", is_flag=True, help="Even if the trainable has changed.")
@ray_address
def resume(shared: Shared, sweep: str, accept_code: bool, address: str | None) -> int:
    """Go on with a sweep; one that has ended is reconciled only."""
    from hposvc import api, repro
    from hposvc.views.foreground import driving

    sweeps = opened(shared)
    before = api.load(sweeps, sweep)
    with driving(before.row.id) as watching:
        record = api.resume(sweeps, before.row.id, [watching], address, accept_code)
    again = repro.resumed(sweeps, before.row) if record.state.finished else None
    if again is not None:
        return answer(shared, again, record)
    code = conclude(shared, sweeps, record)
    return 0 if before.state.finished and code == NO_VALUE else code


def drive(
    shared: Shared, sweeps: "Sweeps", row: "SweepRow", address: str | None, show: bool = True
) -> int:
    """Run a recorded sweep to its end, and print what it came to."""
    from hposvc import api
    from hposvc.views.foreground import driving

    with driving(row.id) as watching:
        record = api.drive(sweeps, row, [watching] if show else [], address)
    return conclude(shared, sweeps, record)


def conclude(shared: Shared, sweeps: "Sweeps", record: "Record") -> int:
    """Print what a sweep came to."""
    from hposvc.views import outcome, room

    if record.failures():
        console(sys.stderr).print(outcome.failures(record.row.id, record.failures()))
    if not shared.json(record.status()):
        show(*outcome.summary(record, sweeps.home))
    if record.behind:
        note(outcome.behind(record))
    if record.state.state == "PAUSED" and record.state.full:
        note(room.full(record.row.id, record.state))
        return OUT_OF_REACH
    if record.state.state == "PAUSED":
        note(f"{record.row.id} is paused; to go on: hposvc resume {record.row.id}")
    elif not record.state.front:
        return NO_VALUE
    return OUT_OF_REACH if record.behind else 0
