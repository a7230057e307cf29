"""`parameters: {space: module:function}`: what the function suggests takes its place.

That happens where a spec is loaded, so that the frozen one is plain data, which needs neither the
function nor its module. A tag keeps its name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from hposvc.plugins import REFERENCE, resolve
from hposvc.reading.problems import SpecError, cut, fail, shown
from hposvc.spec.kinds import IN_FILE
from searchers.space import Space
from searchers.values import SpaceError
from trainables import load

SPACE = ("parameters", "space")
TAG = "hposvc.space"


def with_space(data: Mapping[str, object]) -> dict[str, object]:
    """The data of a spec with plain parameters; those declared beside the function win over its.

    Raises:
        SpecError: the function cannot be imported, or suggests no space that can be described.
    """
    parameters, tags = data.get("parameters"), data.get("tags", {})
    given = parameters.get("space") if isinstance(parameters, Mapping) else None
    if not isinstance(parameters, Mapping) or not (isinstance(given, str) or callable(given)):
        return dict(data)
    function = _imported(given) if isinstance(given, str) else given
    found = _suggested(function)
    beside = {name: declared for name, declared in parameters.items() if name != "space"}
    if isinstance(tags, Mapping):
        tags = {TAG: given if isinstance(given, str) else _name(function), **tags}
    return {**data, "parameters": {**found, **beside}, "tags": tags}


def with_called(data: Mapping[str, object]) -> Mapping[str, object]:
    """The same for a function that is given itself; one that is named is left as it is."""
    parameters = data.get("parameters")
    given = parameters.get("space") if isinstance(parameters, Mapping) else None
    try:
        return with_space(data) if callable(given) else data
    except SpecError as error:
        raise error.at("spec") from error


def _suggested(function: Callable[[Any], object]) -> dict[str, object]:
    try:
        found = Space.from_function(function).to_dict()
    except SpaceError as error:
        raise fail(str(error), *SPACE) from error
    if "space" in found:
        raise fail(f"{_name(function)} suggests 'space', which is the key here; rename it", *SPACE)
    return found


def _imported(reference: str) -> Callable[[Any], object]:
    if not (REFERENCE.fullmatch(reference) or IN_FILE.fullmatch(reference)):
        wanted = "write module:function or path/to/file.py:function"
        constant = f"for a constant of this name {{values: [{cut(reference)}]}}"
        raise fail(f"is {shown(reference)}; {wanted}, {constant}", *SPACE)
    in_file = IN_FILE.fullmatch(reference)
    try:
        found = load.resolve(reference) if in_file else resolve(reference)
    except (Exception, SystemExit) as error:
        message = str(error).removeprefix("trainable ")
        if in_file and not isinstance(error, load.LoadError):
            message = f"{reference} fails when it is loaded: {type(error).__name__}: {message}"
        raise fail(message, *SPACE) from error
    if not callable(found):
        raise fail(f"{reference} is no function", *SPACE)
    called: Callable[[Any], object] = found
    return called


def _name(function: Callable[[Any], object]) -> str:
    owner = function if hasattr(function, "__qualname__") else type(function)
    return f"{owner.__module__}:{owner.__qualname__}"
