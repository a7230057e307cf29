"""A plain page of the routes: FastAPI's own pages load scripts from elsewhere."""

from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter()


@router.get("/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """Return a page that lists all routes; /openapi.json has their bodies."""
    rows = [
        f"<tr><td>{method.upper()}</td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(route.get('description', ''))}</td></tr>"
        for path, methods in request.app.openapi()["paths"].items()
        for method, route in methods.items()
    ]
    title = "<!doctype html><html lang=en><title>hposvc</title><h1>hposvc</h1>"
    schema = "<p>Bodies and parameters: <a href=/openapi.json>openapi.json</a>.</p>"
    return HTMLResponse(f"{title}{schema}<table>{''.join(rows)}</table></html>")
