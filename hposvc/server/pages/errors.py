"""Errors as pages, for people whose browser asked; programs get them as JSON."""

from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from hposvc.server.pages.rendering import page, wants_page
from hposvc.server.problems import ErrorResponse

LOGIN = "/login"
TITLES = {
    400: "That request makes no sense here",
    403: "You may not do this",
    404: "There is nothing here",
    409: "This can't be shown",
    429: "Too many requests",
    503: "Something does not answer",
}


def respond(request: Request, answered: ErrorResponse) -> Response:
    """Return the response to a request that failed: a page, the way to the login, or JSON."""
    if not wants_page(request):
        return answered.response()
    if answered.status == 401:
        return _to_login(request)
    title = TITLES.get(answered.status, "Something went wrong")
    return page(
        request,
        "error.html",
        answered.status,
        answered.headers,
        title=title,
        status=answered.status,
        errors=answered.errors,
    )


def _to_login(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    target = f"{LOGIN}?next={quote(wanted, safe='')}"
    if "HX-Request" in request.headers:  # htmx would show the login inside the page
        return Response(status_code=401, headers={"HX-Redirect": target})
    return RedirectResponse(target, 303)
