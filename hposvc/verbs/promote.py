"""`promote`: register a sweep's best model in MLflow."""

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import click

from hposvc.errors import Busy, fail
from hposvc.open_sweep import OpenSweep
from hposvc.remote.place import Place
from hposvc.remote.server import connection
from hposvc.spec import registry
from hposvc.spec.sections import Register, read_gate
from hposvc.tracking.mlflow_server import quiet_mlflow
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import emit, plain

if TYPE_CHECKING:
    from hposvc.tracking.promotion import Promotion


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
    if not shared.json(asdict(promotion)):
        emit(plain(f"{promotion}\n"))


def promote(
    place: Place, sweep: str, model: str, alias: str = "champion", gate: float = 0.0
) -> "Promotion":
    """Register the best trial's checkpoint as a model version, and decide on the alias.

    Args:
        alias: moves to the new version if it is better.
        gate: the improvement that this takes, in the metric's unit.

    Raises:
        SpecError: MLflow does not take the name of the model or of the alias; a negative gate.
        NotFound: there is no such sweep, or it has nothing to register.
        Busy: a driver is at work on the sweep.
        TrackerError: MLflow is out of reach.
    """
    if isinstance(place, connection.ServedSweeps):
        body = {"model": model, "alias": alias, "gate": gate}
        result = place.result(place.http.post(connection.path_of(sweep, "promote"), body))
        promotion = registry.resolve("hposvc.tracking.promotion:Promotion")(**result)
        return cast("Promotion", promotion)
    try:
        improvement = read_gate(gate)
    except ValueError as error:
        raise fail(error, "--gate") from error
    register = Register(model, alias, improvement)
    record = OpenSweep(place, sweep).record()
    name, spec = record.row.id, record.state.spec
    if record.driver == "alive":
        message = f"{name}: a driver is at work on it; promote when it has ended"
        raise Busy(f"{message}, or give the spec a section `register`")
    quiet_mlflow()  # before mlflow is imported, which takes seconds
    tracker = registry.resolve("hposvc.tracking.mlflow_client:tracker_of")(place.home, name, spec)
    register_best = registry.resolve("hposvc.tracking.promotion:promote")
    return cast("Promotion", register_best(tracker, register, record.state, record.runs))
