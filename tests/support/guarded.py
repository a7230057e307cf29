"""A server as it is on a network, called in this process: with tokens, projects and an address."""

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.testclient import TestClient

from hposvc import api
from hposvc.server.access import Reader, Steerer, Submitter, check_sweep
from hposvc.server.app import API, create_app
from hposvc.server.config import Config
from hposvc.server.service import Listening, Service
from hposvc.spec.parsing.coercion import fill
from hposvc.verbs.token import create_token

SPEC = {
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "trials": {"max": 4},
}
HOST = "sweeps.example.org"
ELSEWHERE = "203.0.113.7"  # an address for documentation (RFC 5737)
LISTENING = Listening(HOST, 443, behind_proxy=True)
HERE = Listening("127.0.0.1", 8900)

router = APIRouter()


@router.get("/sweeps/{id}/probe")
def probe(caller: Reader, id: str) -> str:
    return id


@router.get("/sweeps/{id}/careless")
def careless(id: str) -> str:
    """A route whose author forgot to name a scope."""
    return id


@router.post("/sweeps/{id}/push")
def push(caller: Steerer, id: str) -> str:
    return id


@router.post("/probe")
def submit(caller: Submitter, body: dict[str, Any]) -> str:
    return caller.name


def config_of(data: dict[str, Any]) -> Config:
    return fill(Config, data)


def call(
    sweeps: api.Sweeps, config: Config, listening: Listening = LISTENING, client: str = ELSEWHERE
) -> TestClient:
    """Return a client of a server with some routes more, as a caller from the address `client`."""
    app = create_app(Service(sweeps, None, config, listening))
    app.include_router(router, prefix=API, dependencies=[Depends(check_sweep)])
    scheme = "https" if listening is LISTENING else "http"
    return TestClient(app, base_url=f"{scheme}://{listening.host}/api/v1", client=(client, 50000))


def bearer(sweeps: api.Sweeps, owner: str, *scopes: str) -> dict[str, str]:
    """Return the header with a new token."""
    token = create_token(sweeps, owner, scopes, "1h").token
    return {"Authorization": f"Bearer {token}"}


def code(response: Any) -> tuple[int, str]:
    """Return an error's status and code."""
    (error,) = response.json()["errors"]
    return response.status_code, error["code"]
