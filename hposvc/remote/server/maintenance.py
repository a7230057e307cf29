"""Keep a server in order: MLflow's copies, garbage, notifications, and tokens."""

from hposvc.remote.server.connection import ServedSweeps, place
from hposvc.tracking.comparison import MlflowComparison

COMPARE_S = 600.0  # for which a comparison of MLflow with the journal may take


def check(server: ServedSweeps, sweep: str, fix: bool = False) -> MlflowComparison:
    """Compare what MLflow holds of a sweep with the journal, like `mlflow.check`."""
    where = place(sweep, "doctor")
    if fix:
        return MlflowComparison.from_data(
            server.result(server.http.post(where, {}, repeatable=True))
        )
    return MlflowComparison.from_data(server.http.get(where, work_s=COMPARE_S))
