"""Pages from templates: values are escaped, and browsers run only scripts of this server."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hposvc.reporting.prose import prose
from hposvc.server import browser
from hposvc.server.pages import assets
from hposvc.server.principal import NOBODY, Principal
from hposvc.text import NONE, duration, energy, number, value_text

TEMPLATES = Path(__file__).parent / "templates"
NO_HEADERS: Mapping[str, str] = {}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    # With `no-referrer`, a browser hides the Origin of forms, which the gate checks.
    "Referrer-Policy": "same-origin",
}


def page(
    request: Request,
    template: str,
    status: int = 200,
    headers: Mapping[str, str] = NO_HEADERS,
    /,
    **values: object,
) -> HTMLResponse:
    """Return a page.

    Args:
        template: a file of the folder `templates`.
        headers: beside those of every page.
        values: what the template shows.
    """
    caller: Principal = getattr(request.state, "principal", NOBODY)
    service = request.app.state.service if "app" in request.scope else None
    common = {
        "me": caller,
        "is_known": caller is not NOBODY,
        "csrf": browser.csrf_token(caller.session) if caller.session else "",
        "read_only": service is not None and service.read_only,
        "path": request.url.path,
    }
    text = _environment().get_template(template).render({**common, **values})
    return HTMLResponse(text, status, {**HEADERS, **headers})


def wants_page(request: Request) -> bool:
    """Return whether a browser asks for something that it shows to a person."""
    is_api = request.scope["path"].startswith(("/api/", "/healthz", "/readyz", "/metrics"))
    return not is_api and "text/html" in request.headers.get("Accept", "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(asset=assets.url)
    environment.filters.update(
        prose=prose,
        number=number,
        value=value,
        duration=duration,
        energy=energy,
        ago=ago,
        left=left,
        iso=iso,
        clock=clock,
        count=count,
    )
    return environment


def value(given: Any) -> str:
    """Return the value of a parameter, or of a key of a spec."""
    if isinstance(given, Mapping):
        return ", ".join(f"{key}: {value(part)}" for key, part in given.items())
    if isinstance(given, list | tuple):
        return ", ".join(map(value, given))
    return value_text(given)


def count(number_of: int | None) -> str:
    """Return a whole number with a thin space between thousands."""
    return NONE if number_of is None else f"{number_of:,}".replace(",", "\u202f")


def ago(seconds: float) -> str:
    """Return how long ago a second of the epoch was."""
    passed_s = time.time() - seconds
    if passed_s > 30 * 86400:
        return iso(seconds)[:10]
    return "just now" if passed_s < 10 else f"{duration(passed_s).split(' ')[0]} ago"


def left(seconds: float) -> str:
    """Return how long it is until a second of the epoch."""
    return duration(max(0.0, seconds - time.time())).split(" ")[0]


def iso(seconds: float) -> str:
    """Return a second of the epoch as a date and a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(seconds: float, start: float) -> str:
    """Return a time as the span since the start of a sweep."""
    return f"+{duration(seconds - start)}"
