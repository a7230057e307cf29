"""The description of the API, OpenAPI 3.1, with the errors that any route may answer."""

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field

DESCRIPTION = """Sweeps, their trials and their events, over HTTP.

`{id}` is a sweep's id, the beginning of it if no other sweep begins so, or `last`.
`hposvc docs api` has a first session, and explains events, pages and errors.
"""
# Statuses that any route of the API may answer, with what they say.
REFUSALS = {
    400: "The request is malformed, or the spec has mistakes.",
    401: "The token is missing, unknown, or has ended.",
    403: "The token lacks a scope, or the request comes from another site.",
    404: "There is no such thing that the caller may see.",
    409: "Another request or driver came before, or the sweep can't be read by this version.",
    410: "The sweep is over.",
    413: "The body is too large.",
    429: "Too many requests; Retry-After says when to ask again.",
    503: "The journal, or a cluster, does not answer; Retry-After says when to ask again.",
}
API = "/api/"


class Error(BaseModel):
    """Body of an error: what is wrong, and how to mend it."""

    code: str = Field(description="A word for programs.", examples=["not_found"])
    message: str = Field(description="For people.")
    file: str | None = Field(description="Of a spec: the file.")
    line: int | None = Field(description="Of a spec: the line, from 1.")
    column: int | None = Field(description="Of a spec: the column, from 1.")
    key: str | None = Field(description="The key that is wrong, dotted.")
    fix: str | None = Field(description="What to write instead.")


class Errors(BaseModel):
    """The body of every error."""

    errors: list[Error]


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the description of answers that are errors."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}}
    return {status: {"description": REFUSALS[status], "content": content} for status in statuses}


def describe(app: FastAPI) -> None:
    """Have the application describe itself with our errors in place of FastAPI's own."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _schema(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way


def _schema(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title="hposvc", version=version("hposvc"), description=DESCRIPTION, routes=app.routes
    )
    schemas = schema.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    errors = Errors.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(errors.pop("$defs"), Errors=errors)
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            answers = operation["responses"]
            answers.pop("422", None)  # FastAPI's own; ours is 400
            for status, answer in refusals(*REFUSALS).items() if path.startswith(API) else ():
                answers.setdefault(f"{status}", answer)
    return schema
