"""`promote`: register a sweep's best model in MLflow."""

from typing import Annotated

import click

from hposvc.api import Sweeps
from hposvc.errors import Busy, fail
from hposvc.open_sweep import OpenSweep
from hposvc.operation import operation
from hposvc.spec import registry
from hposvc.spec.sections import Register, read_gate
from hposvc.text import doc
from hposvc.tracking.answers import Promotion
from hposvc.tracking.mlflow_server import quiet_mlflow
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import emit, plain


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
def promote_command(shared: Shared, sweep: str, model: str, alias: str, gate: float) -> None:
    """Register the best trial's checkpoint in MLflow."""
    promotion = promote(shared.open_place(), sweep, model, alias, gate)
    if not shared.json(promote.data(promotion)):
        emit(plain(f"{promotion}\n"))


@operation("POST", "sweeps/{sweep}/promote", "steer")
def promote(
    sweeps: Sweeps,
    sweep: str,
    model: Annotated[str, doc("Register it as this model.")],
    alias: Annotated[str, doc("Move this alias to the version if it is better.")] = "champion",
    gate: Annotated[float, doc("Require this improvement, in the metric's unit.")] = 0.0,
) -> Promotion:
    """Register the best trial's checkpoint in MLflow.

    Raises:
        SpecError: MLflow does not take the name of the model or of the alias; a negative gate.
        NotFound: there is no such sweep, or it has nothing to register.
        Busy: a driver is at work on the sweep.
        TrackerError: MLflow is out of reach.
    """
    try:
        improvement = read_gate(gate)
    except ValueError as error:
        raise fail(error, "--gate") from error
    register = Register(model, alias, improvement)
    record = OpenSweep(sweeps, sweep).record()
    name, spec = record.row.id, record.state.spec
    if record.driver == "alive":
        message = f"{name}: a driver is at work on it; promote when it has ended"
        raise Busy(f"{message}, or give the spec a section `register`")
    quiet_mlflow()  # before mlflow is imported, which takes seconds
    tracker = registry.resolve("hposvc.tracking.mlflow_client:tracker_of")(sweeps.home, name, spec)
    register_best = registry.resolve("hposvc.tracking.promotion:promote")
    promotion: Promotion = register_best(tracker, register, record.state, record.runs)
    return promotion
