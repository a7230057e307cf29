"""The verb that registers a sweep's best model in MLflow."""

from dataclasses import asdict

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.options import Shared, sweep_id
from hposvc.views.console import emit


@verb
@sweep_id
@click.option("--model", required=True, metavar="NAME", help="Register it as this model in MLflow.")
@click.option(
    "--alias",
    default="champion",
    show_default=True,
    help="Move this alias to the new version if it is better.",
)
@click.option(
    "--gate", type=float, default=0.0, help="Require this improvement, in the metric's unit."
)
def promote(shared: Shared, sweep: str, model: str, alias: str, gate: float) -> None:
    """Register the best trial's checkpoint in MLflow."""
    from hposvc import api
    from hposvc.journal.home import NotFound
    from hposvc.spec.model_registry import Register, read_gate
    from hposvc.tracking.recorder_process import quiet_mlflow

    try:
        improvement = read_gate(gate)
    except ValueError as error:
        raise click.UsageError(f"--gate {error}") from error
    register = Register(model, alias, improvement)
    sweeps = open_home(shared)
    record = api.load(sweeps, sweep)
    if record.driver == "alive":
        message = f"{record.row.id}: a driver is at work on it; promote when it has ended"
        raise click.ClickException(f"{message}, or give the spec a section `register`")
    quiet_mlflow()
    from hposvc.tracking import promotion
    from hposvc.tracking.mlflow_client import tracker_of

    tracker = tracker_of(sweeps.home, record.row.id, record.state.spec)
    try:
        promoted = promotion.promote(tracker, register, record.state, record.runs)
    except promotion.Unfit as error:
        raise NotFound(str(error)) from error
    if not shared.json(asdict(promoted)):
        emit(promotion.describe(promoted) + "\n")
