"""The application: the routes of the API, on top of a service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi.middleware.gzip import GZipMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES

from hposvc.server import openapi, problems, submissions
from hposvc.server.access import check_sweep
from hposvc.server.gate import Gate
from hposvc.server.metrics import Measured, Metrics
from hposvc.server.pages import compare_page, files, login, sweep_list, sweep_page, trial_page
from hposvc.server.pages.errors import respond
from hposvc.server.rates import Rates
from hposvc.server.routes import (
    agents,
    archives,
    docs,
    events,
    monitoring,
    operations,
    steer,
    studies,
    submit,
    sweeps,
    tokens,
    verbs,
)
from hposvc.server.service import Service
from hposvc.server.turns import IN_TURN, give_threads

API = "/api/v1"
# Their requests wait for events or for the client, and hold no thread meanwhile.
WAITING = (archives, events, agents)
# Pages, charts and styles shrink to a quarter. Programs take JSON and files as they are: on this
# machine compression would cost more than it saves.
NOT_COMPRESSED = ("application/json", "application/octet-stream", *DEFAULT_EXCLUDED_CONTENT_TYPES)


def create_app(service: Service) -> FastAPI:
    """Return the server's application."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if not service.read_only:
            submissions.forget_secrets(service.sweeps)
        give_threads(app)
        with service.running():
            yield

    # FastAPI's own pages load scripts from elsewhere.
    app = FastAPI(title="hposvc", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    problems.answer_errors(app, respond)
    openapi.describe(app)
    api = (
        sweeps,
        submit,
        steer,
        operations,
        archives,
        events,
        agents,
        studies,
        tokens,
    )
    existing_sweep = Depends(check_sweep)
    for routes in api:
        checks = [existing_sweep] if routes in WAITING else [existing_sweep, IN_TURN]
        app.include_router(routes.router, prefix=API, dependencies=checks)
    app.include_router(verbs.create_router(), prefix=API, dependencies=[existing_sweep, IN_TURN])
    pages = (files, login, sweep_list, sweep_page, trial_page, compare_page)
    for shown in pages:
        app.include_router(
            shown.router, dependencies=[existing_sweep, IN_TURN], include_in_schema=False
        )
    app.include_router(monitoring.router)
    app.include_router(docs.router)
    app.add_middleware(GZipMiddleware, compresslevel=5, exclude_content_types=NOT_COMPRESSED)
    app.state.readiness = monitoring.Readiness(service.sweeps.journal)
    app.state.rates = Rates(service.config.requests)
    app.add_middleware(Gate, service=service, rates=app.state.rates)
    app.state.metrics = Metrics(service)
    app.add_middleware(Measured, metrics=app.state.metrics)  # outermost: it sees what is refused
    return app
