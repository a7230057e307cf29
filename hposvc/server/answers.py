"""Answers with a tag, so that a client that has them already gets none; and cursors of pages."""

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, TypeAdapter

from hposvc.errors import fail

JSON = "application/json"
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "The client has it already."}}


def tagged(request: Request, body: object) -> Response:
    """Return a body with its ETag; 304 without a body if the client has it (If-None-Match)."""
    content = _encode(body)
    return _unless_known(request, content, lambda: content)


def tagged_as(request: Request, version: str, make: Callable[[], object]) -> Response:
    """Return a body that is made only if the client does not have it; 304 if it does.

    Args:
        version: changes whenever the body does.
    """
    return _unless_known(request, version.encode(), lambda: _encode(make()))


def _encode(body: Any) -> bytes:
    kind: Any = type(body)  # mypy takes no class for hashable
    return _writer(kind).dump_json(body, exclude_unset=isinstance(body, BaseModel))


@cache
def _writer(kind: Any) -> TypeAdapter[Any]:
    """Return what writes bodies of a class."""
    return TypeAdapter(kind)


def _unless_known(request: Request, version: bytes, make: Callable[[], bytes]) -> Response:
    etag = f'"{hashlib.sha256(version).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    given = request.headers.get("If-None-Match", "")
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    if etag in tags or "*" in tags:
        return Response(status_code=304, headers=headers)
    return Response(make(), media_type=JSON, headers=headers)


def to_cursor(position: list[float | int | str]) -> str:
    """Return a position in a list as a text that nobody needs to understand."""
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def from_cursor(
    cursor: str, *types: type | tuple[type, ...], parameter: str = "cursor"
) -> list[Any]:
    """Return the position that `to_cursor` made a cursor of.

    Args:
        parameter: of the request, which the cursor was given as.

    Raises:
        SpecError: it made no such cursor.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        position = json.loads(text)
        if not isinstance(position, list):
            raise ValueError("no list")
        for item, kind in zip(position, types, strict=True):
            if not isinstance(item, kind) or isinstance(item, bool):
                raise ValueError("another list's")
    except (ValueError, RecursionError) as error:
        fix = "give the `next` of an answer, unchanged"
        raise fail(f"is {cursor[:60]!r}", parameter, fix=fix) from error
    return position
