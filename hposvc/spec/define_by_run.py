"""Define-by-run spaces: `parameters: {space: module:function}` becomes the suggested parameters.

The function is called when a spec is loaded, so that the frozen spec is plain data, which needs
neither the function nor its module. A tag keeps the function's name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hposvc.errors import SpecError, fail, shorten, shown
from hposvc.spec.registry import is_reference, resolve_function
from searchers import Space, SpaceError

SPACE = ("parameters", "space")
TAG = "hposvc.space"


def resolve_space(data: Mapping[str, object]) -> dict[str, object]:
    """Return a spec's data with plain parameters; those declared beside the function win.

    Raises:
        SpecError: the function cannot be imported, or no declaration can hold its space.
    """
    parameters, tags = data.get("parameters"), data.get("tags", {})
    space = parameters.get("space") if isinstance(parameters, Mapping) else None
    if not isinstance(parameters, Mapping) or not (isinstance(space, str) or callable(space)):
        return dict(data)
    function = _import_function(space) if isinstance(space, str) else space
    suggested = _suggest(function)
    beside = {name: declared for name, declared in parameters.items() if name != "space"}
    if isinstance(tags, Mapping):
        tags = {TAG: space if isinstance(space, str) else _qualified_name(function), **tags}
    return {**data, "parameters": {**suggested, **beside}, "tags": tags}


def resolve_callable_space(data: Mapping[str, object]) -> Mapping[str, object]:
    """Return the data with the space resolved if it is a callable, not the name of a function."""
    parameters = data.get("parameters")
    space = parameters.get("space") if isinstance(parameters, Mapping) else None
    try:
        return resolve_space(data) if callable(space) else data
    except SpecError as error:
        raise error.at("spec") from error


def _suggest(function: Callable[[Any], object]) -> dict[str, object]:
    try:
        suggested = Space.from_function(function).to_dict()
    except SpaceError as error:
        raise fail(error, *SPACE) from error
    if "space" in suggested:
        message = f"{_qualified_name(function)} suggests 'space', which is the key here"
        raise fail(message, *SPACE, fix="rename it")
    return suggested


def _import_function(reference: str) -> Callable[[Any], object]:
    if not is_reference(reference):
        remedy = "write module:function or path/to/file.py:function"
        constant = f"for a constant of this name {{values: [{shorten(reference)}]}}"
        raise fail(f"is {shown(reference)}", *SPACE, fix=f"{remedy}, {constant}")
    try:
        function: Callable[[Any], object] = resolve_function(reference)
    except ValueError as error:
        raise fail(error, *SPACE) from error
    return function


def _qualified_name(function: Callable[[Any], object]) -> str:
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"
