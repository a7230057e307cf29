"""Verbs that explain a trial's decisions (`audit`) and train it again (`repro`)."""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.exit_codes import NO_VALUE, OUT_OF_REACH
from hposvc.cli.options import Shared, cluster_address, optional_trial, ray_address, sweep_id
from hposvc.views.console import note, show

if TYPE_CHECKING:
    from hposvc.analysis.reproduction import Original
    from hposvc.api import Record


@verb
@sweep_id
@optional_trial
@cluster_address
def audit(shared: Shared, sweep: str, trial: str | None, address: str | None) -> None:
    """Explain every decision about a trial.

    It shows what proposed the trial, with which others it was compared, and why it was stopped or
    copied. Without TRIAL: the decisions about the whole sweep.
    """
    from hposvc import spec as specs
    from hposvc.analysis.audit import of_sweep, of_trial
    from hposvc.journal.home import NotFound
    from hposvc.remote import client
    from hposvc.views.audit import timeline

    row, events = client.history(open_home(shared), sweep, address)
    spec = specs.restore(row.spec)
    lines = of_sweep(spec, events) if trial is None else of_trial(spec, events, trial)
    if trial is not None and not lines:
        raise NotFound(f"{row.id} has no trial {trial}; `hposvc trials {row.id}` lists them")
    if not shared.json([line.data() for line in lines]):
        show(timeline(lines, spec.fidelity.unit if spec.fidelity else "step"))


@verb
@sweep_id
@click.argument("trial")
@click.option(
    "--accept-code", is_flag=True, help="Continue even if the trainable's code has changed."
)
@ray_address
def repro(shared: Shared, sweep: str, trial: str, accept_code: bool, address: str | None) -> int:
    """Train a trial again, and compare the results.

    The answer is `verdict`: equal, within noise, or different; the exit code is 0 for each. After
    Ctrl-C `resume` goes on with it, and gives the answer.
    """
    from hposvc import api
    from hposvc.analysis import reproduction
    from hposvc.cli.foreground import driving

    sweeps = open_home(shared)
    before = reproduction.original(sweeps, sweep, trial, accept_code)
    before.spec.environment.reveal(os.environ)  # refuse a missing secret before the sweep begins
    row = api.create(sweeps, before.spec, before.again)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    with driving(row.id) as view:
        record = api.drive(sweeps, row, [view], address)
    return answer(shared, before, record)


def answer(shared: Shared, before: "Original", record: "Record") -> int:
    """Print the comparison of a trial with its second training, and return the exit code."""
    from hposvc.analysis import reproduction
    from hposvc.views import result
    from hposvc.views.audit import compared

    comparison = reproduction.compare(before, record.state)
    if not shared.json(asdict(comparison)):
        show(compared(comparison, before.spec))
    if record.behind:
        note(result.describe_backlog(record))
    if not any(trial.values for trial in record.state.trials.values()):
        note(f"it has no value this time; hposvc logs {record.row.id} has what its workers wrote")
        return NO_VALUE
    return OUT_OF_REACH if record.behind else 0
