"""A server's application in this process, for tests of its routes."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from hposvc import api
from hposvc.server.app import create_app
from hposvc.server.service import Service
from hposvc.spec.user_code import forbid_user_code
from trainables import load

DEADLINE_S = 120.0
ADDRESS = "http://127.0.0.1:8900"
SPEC: dict[str, Any] = {
    "name": "bowl",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
    "trials": {"max": 2},
    "search": "random",
    "engine": {"type": "simulate", "curve": "curves:bowl"},
}


@contextmanager
def client(home: Path) -> Iterator[TestClient]:
    """Serve a home; a bug is answered as by a real server, not raised in the test."""
    app = create_app(Service(api.Sweeps.open(home)))
    with TestClient(app, base_url=ADDRESS, raise_server_exceptions=False) as served:
        yield served


@contextmanager
def without_user_code() -> Iterator[None]:
    """Import no code of users in this process, as a server does."""
    before = load.packages_allowed
    forbid_user_code()
    try:
        yield
    finally:
        load.packages_allowed = before


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """Return a zip of files, by their paths."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def errors(response: Any) -> list[dict[str, Any]]:
    """Return the errors of a response, all of which have the same fields."""
    entries: list[dict[str, Any]] = response.json()["errors"]
    fields = {"code", "message", "file", "line", "column", "key", "fix"}
    assert entries
    assert all(set(entry) == fields for entry in entries)
    return entries
