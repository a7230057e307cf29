"""MLflow's copy of a sweep: compare it with the journal, repair it, register the best model.

What needs mlflow is loaded by name, when it is used: that takes seconds, and mlflow must be
configured before.
"""

from typing import TYPE_CHECKING, cast

from hposvc import api
from hposvc.errors import Busy, fail
from hposvc.journal.home import find
from hposvc.spec import registry
from hposvc.spec.model_registry import Register, read_gate
from hposvc.tracking.comparison import MlflowComparison
from hposvc.tracking.mlflow_server import quiet_mlflow

if TYPE_CHECKING:
    from hposvc.tracking.promotion import Promotion


def check(sweeps: api.Sweeps, sweep: str, fix: bool = False) -> MlflowComparison:
    """Compare what MLflow holds of a sweep with the journal.

    Args:
        fix: write what MLflow lacks, and compare again.

    Raises:
        NotFound: there is no such sweep.
        TrackerError: MLflow is out of reach.
    """
    quiet_mlflow()
    row = find(sweeps.journal, sweep)
    reconciler = registry.resolve("hposvc.tracking.reconcile:Reconciler")(
        sweeps.home, sweeps.journal, row
    )
    comparison: MlflowComparison = reconciler.mend() if fix else reconciler.compare()
    return comparison


def promote(
    sweeps: api.Sweeps, sweep: str, model: str, alias: str = "champion", gate: float = 0.0
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
    try:
        improvement = read_gate(gate)
    except ValueError as error:
        raise fail(error, "--gate") from error
    register = Register(model, alias, improvement)
    record = api.load(sweeps, sweep)
    name, spec = record.row.id, record.state.spec
    if record.driver == "alive":
        message = f"{name}: a driver is at work on it; promote when it has ended"
        raise Busy(f"{message}, or give the spec a section `register`")
    quiet_mlflow()
    tracker = registry.resolve("hposvc.tracking.mlflow_client:tracker_of")(sweeps.home, name, spec)
    register_best = registry.resolve("hposvc.tracking.promotion:promote")
    return cast("Promotion", register_best(tracker, register, record.state, record.runs))
