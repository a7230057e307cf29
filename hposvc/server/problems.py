"""Errors as responses: the status of each class of our errors, and the body that explains it.

The body is `{"errors": [{"code", "message", "file", "line", "column", "key", "fix"}]}` for every
error of every route; only `code` and `message` are always texts, the others may be null.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from hposvc import errors
from hposvc.errors import SpecError, dotted, entry, save_traceback, shown
from hposvc.events import UnknownEvent
from hposvc.server.folded import Unreadable
from searchers import nearest

# Errors of the other packages have only an exit code.
EXITS = {
    errors.USAGE: (400, "bad_request"),
    errors.NO_VALUE: (404, "not_found"),
    errors.NOT_FOUND: (404, "not_found"),
    errors.OUT_OF_REACH: (503, "out_of_reach"),
}
HTTP_CODES = {  # of the errors that FastAPI raises
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    413: "too_large",
    429: "rate_limited",
}
RETRY_S = 5  # after which to ask again while something is out of reach
MAX_ERRORS = 100  # in a response
LISTED = "/docs lists them all"
SEND_JSON = "send one, with the header Content-Type: application/json"


class ApiError(HTTPException):  # FastAPI lets it through where it reads a body
    """A request is refused, with this status and code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        key: str | None = None,
        fix: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.code, self.key, self.fix = code, key, fix


def unauthorized(message: str) -> ApiError:
    """Return the refusal of a caller who is not known."""
    fix = "send Authorization: Bearer TOKEN; `hposvc token create` makes one"
    headers = {"WWW-Authenticate": "Bearer"}
    return ApiError(401, "unauthorized", message, fix=fix, headers=headers)


def forbidden(message: str, fix: str | None = None) -> ApiError:
    """Return the refusal of a caller who is known, but may not do this."""
    return ApiError(403, "forbidden", message, fix=fix)


class PathOutside(SpecError):
    """Paths lead out of the files of a submitted sweep."""


# Status and code of each class of our errors.
STATUSES: dict[type[Exception], tuple[int, str]] = {
    PathOutside: (400, "path_outside"),
    errors.SpecError: (400, "spec_error"),
    errors.NotFound: (404, "not_found"),
    errors.Busy: (409, "busy"),
    errors.Fenced: (409, "busy"),
    Unreadable: (409, "unreadable"),
    UnknownEvent: (409, "unreadable"),
    errors.StoreError: (503, "store_out_of_reach"),
    errors.OutOfReach: (503, "out_of_reach"),
    errors.Interrupted: (503, "out_of_reach"),
}


@dataclass(frozen=True)
class ErrorResponse:
    """A response to a request that failed."""

    status: int
    errors: Sequence[Mapping[str, Any]]
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> JSONResponse:
        """Return the response of the server."""
        return JSONResponse({"errors": list(self.errors)}, self.status, dict(self.headers))


def answer(error: BaseException, home: Path, keys: Sequence[str] = ()) -> ErrorResponse:
    """Return the response to an error; that of a bug leaves its traceback in the home.

    Args:
        keys: those of the request's body.
    """
    match error:
        case ApiError():
            refused = entry(error.code, error.detail, key=error.key, fix=error.fix)
            return ErrorResponse(error.status_code, [refused], error.headers or {})
        case SpecError():
            status, code = STATUSES[PathOutside if isinstance(error, PathOutside) else SpecError]
            return ErrorResponse(
                status, [problem.entry(code) for problem in error.problems[:MAX_ERRORS]]
            )
        case RequestValidationError():
            entries = [_describe_misfit(misfit, keys) for misfit in error.errors()[:MAX_ERRORS]]
            return ErrorResponse(400, entries)
        case HTTPException():
            code = HTTP_CODES.get(error.status_code, "bad_request")
            return ErrorResponse(
                error.status_code, [entry(code, error.detail)], error.headers or {}
            )
    status_of_kind = next(
        (STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None
    )
    status, code = status_of_kind or EXITS.get(
        getattr(type(error), "exit_code", errors.BUG), (500, "bug")
    )
    if status == 500:
        return ErrorResponse(500, [entry("bug", _save_bug(error, home))])
    headers = {"Retry-After": f"{RETRY_S}"} if status == 503 else {}
    return ErrorResponse(
        status, [entry(code, f"{error}", fix=getattr(error, "fix", None))], headers
    )


def answer_errors(app: FastAPI, respond: Callable[[Request, ErrorResponse], Response]) -> None:
    """Answer the errors that FastAPI has bodies of its own for; the gate answers all others.

    Args:
        respond: makes the response, for programs or for people.
    """

    def answer_error(request: Request, error: Exception) -> Response:
        home = request.app.state.service.sweeps.home.path
        # The router has no words for these two; the classes of ours have.
        if type(error) is HTTPException and error.status_code in (404, 405):
            kind = "path" if error.status_code == 404 else "method of this path"
            error.detail = f"{request.method} {shown(request.url.path)}: no such {kind}; {LISTED}"
        endpoint = request.scope.get("endpoint")
        keys = _body_keys(endpoint) if isinstance(error, RequestValidationError) else []
        return respond(request, answer(error, home, keys))

    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer_error)


def _body_keys(endpoint: Callable[..., object] | None) -> list[str]:
    """Return the keys that the body of a route's requests may have."""
    hints = {} if endpoint is None else get_type_hints(endpoint)
    kinds = [
        kind
        for name, hint in hints.items()
        if name != "return"
        for kind in (hint, *get_args(hint))
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    ]
    return [key for kind in kinds for key in kind.model_fields]


def _describe_misfit(misfit: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return a misfit of a request's body, path or query as an entry.

    Args:
        keys: those of the body.
    """
    where, *path = misfit["loc"]
    key = dotted(path) or None
    message, fix = misfit["msg"][:1].lower() + misfit["msg"][1:], ""
    match misfit["type"]:
        case "json_invalid":
            reason = misfit.get("ctx", {}).get("error", misfit["msg"])
            at = f" at character {path[0]}" if path else ""
            return entry("bad_request", f"the body is no JSON{at}: {reason}")
        case "missing":
            message, fix = (
                ("is missing", "add it") if key else ("there is no JSON object", SEND_JSON)
            )
        case "model_attributes_type" | "model_type" | "dict_type" if not key:
            message, fix = "is no JSON object", SEND_JSON
        case "extra_forbidden" if len(path) == 1 and keys:
            message, fix = "no such key", nearest(f"{path[0]}", keys)
    text = ": ".join(filter(None, (where, key, "; ".join(filter(None, (message, fix))))))
    return entry("bad_request", text, key=key, fix=fix)


def _save_bug(error: BaseException, home: Path) -> str:
    message = "the server broke, which is a bug of hposvc"
    try:
        return (
            f"{message}; the traceback is in errors/{save_traceback(error, home).name} of its home"
        )
    except OSError:
        return message
