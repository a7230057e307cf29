"""Verbs that say why a trial is what it is, and whether it comes out the same again."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import note, show
from hposvc.views.errors import NO_VALUE, OUT_OF_REACH
from hposvc.views.options import Shared, on_cluster, one_trial, ray_address, sweep_id

if TYPE_CHECKING:
    from hposvc.api import Record
    from hposvc.repro import Original


@verb
@sweep_id
@one_trial
@on_cluster
def audit(shared: Shared, sweep: str, trial: str | None, address: str | None) -> None:
    """Say why: what proposed a trial, with whom it was compared, why it was stopped or copied.

    Without TRIAL: what was decided of the whole sweep.
    """
    from hposvc import audit as audits
    from hposvc import spec as specs
    from hposvc.home import NotFound
    from hposvc.remote import following
    from hposvc.views import audit as view

    row, events = following.history(opened(shared), sweep, address)
    spec = specs.restore(row.spec)
    lines = audits.of_sweep(spec, events) if trial is None else audits.of_trial(spec, events, trial)
    if trial is not None and not lines:
        raise NotFound(f"{row.id} has no trial {trial}; `hposvc trials {row.id}` lists them")
    if not shared.json([line.data() for line in lines]):
        show(view.timeline(lines, spec.fidelity.unit if spec.fidelity else "step"))


@verb
@sweep_id
@click.argument("trial")
@click.option("--accept-code", is_flag=True, help="Even if the trainable has changed.")
@ray_address
def repro(shared: Shared, sweep: str, trial: str, accept_code: bool, address: str | None) -> int:
    """Train a trial again, as it was recorded, and say whether it comes to the same.

    The answer is `verdict`: equal, within noise, or different; the exit code is 0 for each. After
    Ctrl-C `resume` goes on with it, and gives the answer.
    """
    from hposvc import api
    from hposvc import repro as repros
    from hposvc.views.foreground import driving

    sweeps = opened(shared)
    before = repros.original(sweeps, sweep, trial, accept_code)
    before.spec.environment.reveal(os.environ)  # a secret that is missing is told before it begins
    row = api.create(sweeps, before.spec, before.again)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    with driving(row.id) as watching:
        record = api.drive(sweeps, row, [watching], address)
    return answer(shared, before, record)


def answer(shared: Shared, before: "Original", record: "Record") -> int:
    """Print what came of training a trial again."""
    from hposvc import repro as repros
    from hposvc.views import audit as view
    from hposvc.views import outcome

    compared = repros.compare(before, record.state)
    if not shared.json(asdict(compared)):
        show(view.compared(compared, before.spec))
    if record.behind:
        note(outcome.behind(record))
    if not any(one.values for one in record.state.trials.values()):
        note(f"it has no value this time; hposvc logs {record.row.id} has what its workers wrote")
        return NO_VALUE
    return OUT_OF_REACH if record.behind else 0
