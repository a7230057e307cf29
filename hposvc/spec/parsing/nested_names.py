"""Groups of parameters: `optimizer: {lr: {min: 0.1, max: 1}}` is the parameter `optimizer.lr`.

The document is rewritten, so that all that follows knows names with points alone.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from hposvc.errors import KeyPath, Problem, SpecError
from hposvc.spec.parsing.document import Document
from hposvc.spec.parsing.yaml_reader import Mark

PARAMETERS = "parameters"
OF_A_RANGE = ("min", "max", "values", "variants", "shares")  # of which each domain has one


def write_out(document: Document) -> Document:
    """Return the document with the parameters of groups by their names with points.

    Raises:
        SpecError: a parameter is there twice, in a group and by its name.
    """
    parameters = document.data.get(PARAMETERS)
    if not isinstance(parameters, dict) or not any(map(_is_group, parameters.values())):
        return document
    paths: dict[str, KeyPath] = {}
    declared: dict[str, object] = {}
    for path, given in _members((PARAMETERS,), parameters):
        name = ".".join(map(str, path[1:]))
        if name in paths:
            problem = Problem(path, f"{name} is there twice", "remove one of them", at_key=True)
            raise SpecError([document.locate(problem)])
        paths[name], declared[name] = path, given
    moved = {path: (PARAMETERS, name) for name, path in paths.items() if len(path) > 2}
    return replace(
        document,
        data={**document.data, PARAMETERS: declared},
        keys=_with(document.keys, moved),
        values=_with(document.values, moved),
        sets=document.sets | {new for old, new in moved.items() if _begins(old, document.sets)},
    )


def _members(path: KeyPath, group: Mapping[str, object]) -> Iterator[tuple[KeyPath, object]]:
    for name, given in group.items():
        if _is_group(given):
            yield from _members((*path, name), given)
        else:
            yield (*path, name), given


def _is_group(given: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a mapping holds ranges or choices: is none itself, and has one within it."""
    if not isinstance(given, Mapping) or _is_domain(given):
        return False
    return any(_is_domain(value) or _is_group(value) for value in given.values())


def _is_domain(given: object) -> bool:
    """Return whether a mapping is a range or a choice; `min` can be a parameter's name too."""
    if not isinstance(given, Mapping):
        return False
    return any(key in given and not isinstance(given[key], Mapping) for key in OF_A_RANGE)


def _with(marks: Mapping[KeyPath, Mark], moved: Mapping[KeyPath, KeyPath]) -> dict[KeyPath, Mark]:
    """Return places by the paths in the document as written, and by the new ones."""
    depth = max(map(len, moved))
    extended = {**marks}
    for path, mark in marks.items():
        for end in range(3, min(len(path), depth) + 1):
            if path[:end] in moved:
                extended[(*moved[path[:end]], *path[end:])] = mark
    return extended


def _begins(path: KeyPath, others: Collection[KeyPath]) -> bool:
    return any(path[:end] in others for end in range(1, len(path) + 1))
