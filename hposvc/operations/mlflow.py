"""MLflow's copy of a sweep: compare it with the journal, repair it, register the best model.

What needs mlflow is loaded by name, when it is used: that takes seconds, and mlflow must be
configured before.
"""

from typing import TYPE_CHECKING

from hposvc import api
from hposvc.journal.home import find
from hposvc.spec import registry
from hposvc.tracking.comparison import MlflowComparison
from hposvc.tracking.mlflow_server import quiet_mlflow

if TYPE_CHECKING:
    pass


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
