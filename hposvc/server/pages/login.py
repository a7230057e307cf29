"""The page where a browser logs in with a token."""

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hposvc.server.pages.rendering import page
from hposvc.server.problems import ApiError
from hposvc.server.routes.tokens import begin_session
from hposvc.server.service import Serving

router = APIRouter()
LONGEST = 4096  # bytes of the form


@router.get("/login")
async def show_login(request: Request, next: str = "/") -> Response:
    """Return the page that asks for a token."""
    return page(request, "login.html", next=_own_path(next), wrong="")


@router.post("/login")
async def log_in(request: Request, service: Serving) -> Response:
    """Begin a session with the token of the form, and go where the person wanted to go."""
    form = parse_qs((await request.body())[:LONGEST].decode(errors="replace"))
    wanted = _own_path(form.get("next", ["/"])[0])
    response = RedirectResponse(wanted, 303)
    try:
        await begin_session(service, request, response, form.get("token", [""])[0].strip())
    except ApiError as error:
        return page(request, "login.html", error.status_code, next=wanted, wrong=f"{error.detail}")
    return response


def _own_path(wanted: str) -> str:
    """Return a path of this server: others could lead a person elsewhere."""
    is_own = wanted.startswith("/") and not wanted.startswith(("//", "/\\", "/login"))
    return wanted if is_own and wanted.isprintable() else "/"
