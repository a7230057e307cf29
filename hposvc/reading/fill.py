"""Fills frozen dataclasses from plain data, and says in our words what does not fit.

pydantic reads the data as strict JSON: `True` is no number, `"1"` no whole number, and a dataclass
with `__pydantic_config__ = {"extra": "forbid"}` refuses options that it does not have. A SpecError
that a `__post_init__` or a validator raises keeps its own paths; another ValueError its text.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hposvc.reading.problems import Path, Problem, SpecError, no_such, shown

T = TypeVar("T")

UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
WANTED = {  # by pydantic's error type
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "float_type": "give a number",
    "finite_number": "give a finite number",
    "string_type": "give text, in quotes where YAML would read something else",
    "bool_type": "write true or false",
    "dict_type": "give a mapping of key: value",
    "mapping_type": "give a mapping of key: value",
    "tuple_type": "give a list",
    "list_type": "give a list",
    "string_too_short": "give at least one character",
    "greater_than": "give more than {gt:g}",
    "greater_than_equal": "give {ge:g} or more",
    "less_than": "give less than {lt:g}",
    "less_than_equal": "give {le:g} or less",
}
SCALARS = {float: "a number", int: "a number", str: "text", bool: "true or false"}


def fill(cls: type[T], data: Mapping[str, object]) -> T:
    """The dataclass that plain data describes.

    Raises:
        SpecError: every misfit, with its path from `data` on.
    """
    try:
        adapter = _adapter(cls)  # type: ignore[arg-type] # a class is hashable
        filled: T = adapter.validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        found = [problem for entry in error.errors() for problem in _problems(cls, data, entry)]
        raise SpecError(_without_renamed([*dict.fromkeys(found)])) from None
    return filled


@functools.cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _problems(cls: type, data: object, entry: ErrorDetails) -> Iterator[Problem]:
    error = entry.get("ctx", {}).get("error")
    path, value = _in_data(data, entry["loc"])
    hint = _hint_at(cls, path)
    if isinstance(error, SpecError):
        yield from (problem.under(*path) for problem in error.problems)
    elif error is not None:
        yield _named_field(str(error), value).under(*path)
    elif entry["type"] in UNKNOWN:
        owner = _hint_at(cls, path[:-1])
        known = [field.name for field in dataclasses.fields(owner)]
        message = no_such("key", str(path[-1]), known)
        yield Problem(path, message if known else f"{owner.__name__} has no options", at_key=True)
    elif entry["type"] == "missing":
        name = entry["loc"][-1]
        wanted = _wanted_of(_hint_at(cls, (*path, name)))
        yield Problem((*path, name), f"is missing; {wanted}", at_key=True)
    elif entry["type"] == "dataclass_type" or _is_scalar(hint):
        yield Problem(path, f"is {shown(value)}; {_wanted_of(hint)}")
    else:
        yield Problem(path, f"is {shown(value)}; {_wanted(entry)}")


def _named_field(message: str, data: object) -> Problem:
    """`eta is 1; choose ...` of a `__post_init__` belongs to the key `eta`, where there is one."""
    match = re.fullmatch(r"(\w+) (is [^,;]+;.*)", message, re.DOTALL)
    if match and isinstance(data, dict) and match[1] in data:
        return Problem((match[1],), match[2])
    return Problem((), message)


def _wanted(entry: ErrorDetails) -> str:
    if entry["type"] == "literal_error":
        return f"choose {entry['ctx']['expected']}".replace("'", "")
    if entry["type"] in WANTED:
        return WANTED[entry["type"]].format(**entry.get("ctx", {}))
    return entry["msg"][:1].lower() + entry["msg"][1:]


def _wanted_of(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "choose " + " or ".join(map(str, get_args(hint)))
    if dataclasses.is_dataclass(hint):
        names = ", ".join(field.name for field in dataclasses.fields(hint))
        return f"give a mapping of {names}"
    if _is_scalar(hint):
        kinds = _kinds(hint)
        whole = int in kinds and float not in kinds
        words = ["a whole number" if whole and kind is int else SCALARS[kind] for kind in kinds]
        return "give " + " or ".join(dict.fromkeys(words))
    return {int: "give a whole number", str: "give text"}.get(hint, "give a mapping, key: value")


def _in_data(data: object, loc: Path) -> tuple[Path, object]:
    """The parts of pydantic's location that are in the data, and what is there.

    The location also names the branches of a union, and a missing key.
    """
    path: Path = ()
    for part in loc:
        inner = dict(enumerate(data)) if isinstance(data, list) else data
        if not isinstance(inner, dict) or part not in inner:
            continue
        data = inner[part]
        path = (*path, part)
    return path, data


def _hint_at(cls: type, path: Path) -> Any:
    """The type that the dataclass `cls` declares at a path, without `| None`."""
    hint: Any = cls
    for part in path:
        if isinstance(part, int):  # of a list
            hint = next(iter(get_args(hint)), None)
        elif get_origin(hint) in (dict, Mapping):
            hint = get_args(hint)[1]
        else:
            hint = get_type_hints(hint).get(part) if dataclasses.is_dataclass(hint) else None
        inner = _kinds(hint)
        if get_origin(hint) is not Literal and len(inner) == 1:
            hint = inner[0]
    return hint


def _kinds(hint: Any) -> list[Any]:
    """The arguments of a type, without None."""
    return [kind for kind in get_args(hint) if kind is not type(None)]


def _is_scalar(hint: Any) -> bool:
    """Whether it stands for several kinds of scalars, of which pydantic complains one by one."""
    is_union = get_origin(hint) in (Union, UnionType)
    return is_union and len(_kinds(hint)) > 1 and all(kind in SCALARS for kind in _kinds(hint))


def _without_renamed(problems: list[Problem]) -> list[Problem]:
    """Without `metric: is missing` where `metrc: did you mean 'metric'?` says the same."""
    meant = {
        (*problem.path[:-1], match[1])
        for problem in problems
        if problem.at_key and (match := re.search(r"did you mean '(.*)'\?$", problem.message))
    }
    return [
        problem
        for problem in problems
        if problem.path not in meant or not problem.message.startswith("is missing")
    ]
