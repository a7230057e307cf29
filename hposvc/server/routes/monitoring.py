"""Health of the server, and its metrics for Prometheus."""

import asyncio
from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder
from starlette.concurrency import run_in_threadpool

from hposvc.errors import StoreError
from hposvc.journal.journal import Journal, SweepRow
from hposvc.server import models
from hposvc.server.access import Reader
from hposvc.server.openapi import refusals

router = APIRouter(tags=["monitoring"], responses=refusals(429, 503))

READY_S = 5.0  # in which the journal is to answer


class Readiness:
    """Whether the journal answers; a journal that does not holds one thread of the server."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._question: asyncio.Task[SweepRow | None] | None = None

    async def ask(self) -> None:
        """Ask the journal, or wait with those who have asked.

        Raises:
            StoreError: it does not answer, or not in time.
        """
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(run_in_threadpool(self._journal.find, ""))
        try:
            async with asyncio.timeout(READY_S):
                await asyncio.shield(self._question)
        except TimeoutError:
            where = f"journal {self._journal.store}"
            raise StoreError(f"{where}: no answer within {READY_S:g} s") from None


@router.get("/healthz")
async def healthz() -> models.Health:
    """Say that the server answers; this waits for no thread and for no journal."""
    return models.Health(status="ok", version=version("hposvc"))


@router.get("/readyz")
async def readyz(request: Request) -> models.Readiness:
    """Say that the server's journal answers, too; 503 if it has not within five seconds."""
    await request.app.state.readiness.ask()
    return models.Readiness(status="ready", version=version("hposvc"))


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        **refusals(401, 403),
    },
)
def metrics(request: Request, caller: Reader) -> Response:
    """Return the metrics in Prometheus' text format, or as OpenMetrics if the client asks for that.

    A member of projects gets those of the projects' sweeps.
    """
    encode, media_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(request.app.state.metrics.seen_by(caller)), media_type=media_type)
