"""Compare MLflow with the journal, repair it, and delete files."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from hposvc.server import models
from hposvc.server.access import Admin, Principal, Reader, Steerer
from hposvc.server.routes.operations import OperationBody
from hposvc.server.routes.steer import Body
from hposvc.server.routes.sweeps import SweepId
from hposvc.server.service import Service, Serving
from hposvc.verbs import doctor, gc

router = APIRouter(tags=["maintenance"])


class CollectBody(Body):
    """Request to delete what nobody needs."""

    dry_run: bool = Field(default=False, description="Delete and compress nothing.")
    compact: bool = Field(default=False, description="Compress the journal of ended sweeps, too.")
    logs: bool = Field(
        default=False,
        description="Delete logs of ended sweeps, but those of the best and of failed trials.",
    )


@router.get("/sweeps/{id}/doctor")
def compare_mlflow(caller: Reader, service: Serving, sweep: SweepId) -> models.Comparison:
    """Compare what MLflow holds of a sweep with the journal."""
    comparison = doctor.compare_mlflow(service.sweeps, service.find(caller, sweep).id)
    return models.Comparison.model_validate(comparison.data())


@router.post("/sweeps/{id}/doctor", status_code=202)
def repair_mlflow(caller: Steerer, service: Serving, sweep: SweepId) -> OperationBody:
    """Write what MLflow lacks of a sweep; the result is the comparison after that."""
    row = service.find(caller, sweep)

    def work() -> Mapping[str, Any]:
        return doctor.compare_mlflow(service.sweeps, row.id, fix=True).data()

    return OperationBody.of(service.operations.run(caller, "doctor", row.id, work))


@router.post("/sweeps/{id}/gc", status_code=202)
def collect_garbage_of_sweep(
    caller: Steerer, service: Serving, sweep: SweepId, body: CollectBody | None = None
) -> OperationBody:
    """Delete checkpoints that a sweep does not need, unless a driver is at work on it."""
    return _collect(service, caller, service.find(caller, sweep).id, body or CollectBody())


@router.post("/gc", status_code=202)
def collect_garbage(
    caller: Admin, service: Serving, body: CollectBody | None = None
) -> OperationBody:
    """Delete what no sweep needs, of all sweeps and of none."""
    return _collect(service, caller, None, body or CollectBody())


def _collect(
    service: Service, caller: Principal, sweep: str | None, asked: CollectBody
) -> OperationBody:
    def work() -> Mapping[str, Any]:
        freed = gc.collect(service.sweeps, sweep, asked.dry_run, asked.compact, asked.logs)
        files = freed.data(asked.dry_run)
        return {"files": files, "failures": freed.failures, "vacuum_later": freed.vacuum_later}

    return OperationBody.of(service.operations.run(caller, "gc", sweep, work))
