"""Send notifications again."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from hposvc import spec as specs
from hposvc.errors import fail
from hposvc.server.access import Steerer
from hposvc.server.child_drivers import variables_of
from hposvc.server.routes.operations import OperationBody
from hposvc.server.routes.steer import Body
from hposvc.server.routes.submit import Secret, reveal
from hposvc.server.routes.sweeps import SweepId
from hposvc.server.service import Serving
from hposvc.verbs import notify

router = APIRouter(tags=["maintenance"])


class NotifyBody(Body):
    """Request to send a sweep's notifications."""

    secrets: dict[str, Secret] = Field(
        default={}, description="Values of secrets that the spec names, and the server lacks."
    )


@router.post("/sweeps/{id}/notify", status_code=202)
def send_notifications(
    caller: Steerer, service: Serving, sweep: SweepId, body: NotifyBody | None = None
) -> OperationBody:
    """Send the notifications of a sweep that were not delivered, also those given up."""
    row = service.find(caller, sweep)
    spec = specs.thaw(row.spec)
    given = reveal((body or NotifyBody()).secrets)
    if unknown := given.keys() - spec.environment.secrets.keys():
        raise fail(f"has {', '.join(sorted(unknown))}, which the spec does not name", "secrets")
    rules = service.config.notify.environment

    def work() -> Mapping[str, Any]:
        known = variables_of(row.id, spec, service.sweeps.home, os.environ)
        results = notify.send_again(service.sweeps, row.id, {**given, **known, **rules})
        return {"results": [asdict(result) for result in results]}

    return OperationBody.of(service.operations.run(caller, "notify", row.id, work))
