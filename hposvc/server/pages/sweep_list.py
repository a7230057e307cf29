"""The page that lists sweeps."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from hposvc.journal.journal import SweepRow
from hposvc.server.access import Reader
from hposvc.server.pages import pictures
from hposvc.server.pages.rendering import page
from hposvc.server.routes.sweeps import Cursor, SweepId, Text, find_sweeps, listed_rows
from hposvc.server.service import Serving

router = APIRouter()

SHOWN = 30  # sweeps of a page
MOST_LOOKED_AT = 1000  # sweeps, to find those in a state
STATES = ("QUEUED", "RUNNING", "PAUSED", "INTERRUPTED", "COMPLETED", "STOPPED", "FAILED")


@router.get("/")
def show_sweeps(
    request: Request,
    service: Serving,
    caller: Reader,
    q: Text = None,
    state: Annotated[str | None, Query(max_length=20)] = None,
    project: Text = None,
    cursor: Cursor = None,
) -> Response:
    """Return the page that lists sweeps, newest first."""
    sought = (q or "").lower().split()

    def is_wanted(row: SweepRow) -> bool:
        return all(word in f"{row.id} {row.name} {row.project}".lower() for word in sought)

    sweeps, following = find_sweeps(
        service, caller, is_wanted, SHOWN, cursor, project=project or None
    )
    listed = listed_rows(service, sweeps)
    if state:
        looked_at = len(sweeps)
        listed = [row for row in listed if row.state == state]
        while following and len(listed) < SHOWN and looked_at < MOST_LOOKED_AT:
            sweeps, following = find_sweeps(
                service, caller, is_wanted, SHOWN, following, project=project or None
            )
            looked_at += len(sweeps)
            listed += [row for row in listed_rows(service, sweeps) if row.state == state]
    specs = {row.id: row.spec for row in sweeps}
    filters = {"q": q or "", "state": state or "", "project": project or ""}
    kept = {key: text for key, text in filters.items() if text}
    return page(
        request,
        "sweeps.html",
        sweeps=[{**vars(row), "metric": _metric(specs.get(row.sweep, {}))} for row in listed],
        states=STATES,
        filters=filters,
        is_filtered=bool(kept),
        is_first=cursor is None,
        first="/?" + urlencode(kept),
        following=following and "/?" + urlencode({**kept, "cursor": following}),
    )


@router.get("/sweeps/{id}/trend.svg")
def draw_trend(request: Request, service: Serving, caller: Reader, sweep: SweepId) -> Response:
    """Return the best value so far by trial as a small picture."""
    row = service.find(caller, sweep)
    with service.folded.open(row) as folded:
        svg = pictures.trend(folded.look())
    headers = {"Cache-Control": "private, max-age=5"}
    return Response(svg, media_type="image/svg+xml", headers=headers)


def _metric(spec: Mapping[str, Any]) -> str:
    """Return the name of a sweep's metric; empty: it has several, or a later version wrote it."""
    metric = spec.get("metric")
    return f"{metric.get('name', '')}" if isinstance(metric, dict) else ""
