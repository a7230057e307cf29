"""Verbs that put a sweep's model to use."""

from dataclasses import asdict

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import emit
from hposvc.views.options import Shared, sweep_id


@verb
@sweep_id
@click.option("--model", required=True, metavar="NAME", help="The registered model in MLflow.")
@click.option("--alias", default="champion", show_default=True, help="What the version may become.")
@click.option(
    "--gate", type=float, default=0.0, help="The least improvement, in the metric's unit."
)
def promote(shared: Shared, sweep: str, model: str, alias: str, gate: float) -> None:
    """Register the best trial's checkpoint in MLflow; the alias moves to it if it is better."""
    from hposvc import api
    from hposvc.home import NotFound
    from hposvc.spec.register import Register, read_gate
    from hposvc.tracking.recorder import quieten

    try:
        least = read_gate(gate)
    except ValueError as error:
        raise click.UsageError(f"--gate {error}") from error
    register = Register(model, alias, least)
    sweeps = opened(shared)
    record = api.load(sweeps, sweep)
    if record.driver == "alive":
        message = f"{record.row.id}: a driver is at work on it; promote when it has ended"
        raise click.ClickException(f"{message}, or give the spec a section `register`")
    quieten()
    from hposvc.tracking import promotion
    from hposvc.tracking.tracker import tracker_of

    tracker = tracker_of(sweeps.home, record.row.id, record.state.spec)
    try:
        made = promotion.promote(tracker, register, record.state, record.runs)
    except promotion.Unfit as error:
        raise NotFound(str(error)) from error
    if not shared.json(asdict(made)):
        emit(promotion.told(made) + "\n")
