"""Health of the server, and its metrics for Prometheus."""

from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from hposvc.server import models
from hposvc.server.access import Reader
from hposvc.server.openapi import refusals
from hposvc.server.service import Serving

router = APIRouter(tags=["monitoring"], responses=refusals(429, 503))


@router.get("/healthz")
def healthz(service: Serving) -> models.Health:
    """Say that the server answers, and that its journal does; 503 if the journal does not."""
    service.sweeps.journal.find("")
    return models.Health(status="ok", version=version("hposvc"), journal="reachable")


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **refusals(401, 403),
    },
)
def metrics(request: Request, caller: Reader) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
