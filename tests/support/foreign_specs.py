"""Specs of other tools, and what becomes of each of their keys when they are imported."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from hposvc import spec as specs
from hposvc.drafts.imported import reading
from hposvc.drafts.imported.conversion import SpecConversion
from hposvc.errors import SpecError
from hposvc.spec.parsing.document import read_text

Path = tuple[str | int, ...]
PAGE = FilePath(__file__).parents[2] / "docs" / "how-to" / "coming-from.md"


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each value in a document, the outer ones first."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, (*path, key))


def written(path: Path) -> str:
    """Return a key as people write it; items of a list have the same keys."""
    return ".".join(part for part in path if isinstance(part, str))


def spec_of(path: Path, given: Mapping[str, Any], kept: Iterable[str]) -> dict[str, Any]:
    """Return so much of a spec as has a key: its section, and the keys that every spec needs."""
    return {key: given[key] for key in given if key in kept or key == path[0]}


def without(value: Any, path: Path) -> Any:
    """Return a copy of the document that lacks what is at a path."""
    copy = value.copy()
    if len(path) == 1:
        del copy[path[0]]
    else:
        copy[path[0]] = without(value[path[0]], path[1:])
    return copy


def convert(tool: str, given: Mapping[str, Any]) -> SpecConversion:
    """Return a spec of a tool in our words."""
    return reading.TOOLS[tool].convert(read_text(json.dumps(given, indent=1), "theirs"))


def fate(tool: str, given: Mapping[str, Any], path: Path) -> str:
    """Return whether a key is `carried over`, `named` as lost, or has `vanished`.

    It is named if it or the section that it is in is said to be lost. It is carried over if our
    spec, or what is said, is another without it.
    """
    made = convert(tool, given)
    specs.load(read_text(made.text(), "spec"))
    try:
        less = convert(tool, without(given, path))
    except SpecError:
        return "carried over"  # needed to read the rest
    if made.text() != less.text():
        return "carried over"
    if any(each.path and each.path == path[: len(each.path)] for each in made.lost):
        return "named"
    said, said_without = ([each.message for each in one.lost] for one in (made, less))
    return "vanished" if said == said_without else "carried over"
