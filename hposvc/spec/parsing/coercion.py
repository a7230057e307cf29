"""Conversion of plain data into frozen dataclasses, with error messages in plain words.

pydantic reads the data as strict JSON: `True` is not a number, `"1"` not a whole number, and a
dataclass with `__pydantic_config__ = {"extra": "forbid"}` refuses options that it does not have. A
SpecError from a `__post_init__` or a validator keeps its own paths; another ValueError its text.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hposvc.errors import SHOWN, KeyPath, Problem, SpecError, shown
from searchers import nearest, our_name

T = TypeVar("T")

_adapter = functools.cache(TypeAdapter)
_hints: Callable[[Any], dict[str, Any]] = functools.cache(get_type_hints)

UNKNOWN_KEY_ERRORS = ("unexpected_keyword_argument", "extra_forbidden")
REMEDIES = {  # by pydantic's error type
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
SCALARS: dict[Any, str] = {
    **{float: "a number", int: "a number", str: "text", bool: "true or false"},
    **{list: "a list", dict: "a mapping"},
}


def fill(cls: type[T], data: Mapping[str, object]) -> T:
    """Return an instance of the dataclass `cls` with the values of plain data.

    Raises:
        SpecError: all misfits, with their paths in `data`.
    """
    try:
        adapter = _adapter(cls)  # type: ignore[arg-type] # a class is hashable
        filled: T = adapter.validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        raise SpecError(_without_renamed([*dict.fromkeys(_misfits(cls, data, error))])) from None
    return filled


def _misfits(cls: type, data: object, error: ValidationError) -> Iterator[Problem]:
    """Yield all misfits; look up the nearest name only for as many unknown keys as are shown."""
    unknown = 0
    for entry in error.errors(include_url=False):
        unknown += entry["type"] in UNKNOWN_KEY_ERRORS
        if unknown > SHOWN and entry["type"] in UNKNOWN_KEY_ERRORS:
            yield Problem(_locate_in_data(data, entry["loc"])[0], "no such key", at_key=True)
        else:
            yield from _problems(cls, data, entry)


def _problems(cls: type, data: object, entry: ErrorDetails) -> Iterator[Problem]:
    error = entry.get("ctx", {}).get("error")
    path, value = _locate_in_data(data, entry["loc"])
    hint = _hint_at(cls, path)
    if isinstance(error, SpecError):
        yield from (problem.under(*path) for problem in error.problems)
    elif error is not None:
        yield _of_text(str(error), value).under(*path)
    elif entry["type"] in UNKNOWN_KEY_ERRORS:
        owner = _hint_at(cls, path[:-1])
        fields = [field.name for field in dataclasses.fields(owner)]
        fix = nearest(str(path[-1]), fields) if fields else ""
        message = "no such key" if fields else f"{owner.__name__} has no options"
        yield Problem(path, message, fix, at_key=True)
    elif entry["type"] == "missing":
        name = entry["loc"][-1]
        remedy = _wanted_by_hint(_hint_at(cls, (*path, name)))
        yield Problem((*path, name), "is missing", remedy, at_key=True)
    elif entry["type"] == "dataclass_type" or _is_scalar(hint):
        yield Problem(path, f"is {shown(value)}", _wanted_by_hint(hint))
    else:
        fix = f"{_wanted(entry)}{_renamed_word(entry, value)}"
        yield Problem(path, f"is {shown(value)}", fix)


def _of_text(text: str, data: object) -> Problem:
    """Return the problem in the text of a ValueError, which other packages and plug-ins raise.

    They can't raise ours, and write `eta is 1; give 2 or more`, which is about the key `eta`.
    """
    problem = Problem.of_text(text)
    match = re.fullmatch(r"(\w+) (is [^,]+)", problem.message, re.DOTALL)
    if problem.fix and match and isinstance(data, dict) and match[1] in data:
        return Problem((match[1],), match[2], problem.fix)
    return problem


def _wanted(entry: ErrorDetails) -> str:
    if entry["type"] == "literal_error":
        return f"choose {entry['ctx']['expected']}".replace("'", "")
    if entry["type"] in REMEDIES:
        return REMEDIES[entry["type"]].format(**entry.get("ctx", {}))
    return entry["msg"][:1].lower() + entry["msg"][1:]


def _renamed_word(entry: ErrorDetails, value: object) -> str:
    """Return a hint at the allowed word that another tool's word means; empty: none."""
    ours = our_name(value) if isinstance(value, str) else ""
    allowed = entry.get("ctx", {}).get("expected", "")
    return f" (did you mean {ours!r}?)" if ours and f"'{ours}'" in allowed else ""


def _wanted_by_hint(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "choose " + " or ".join(map(str, get_args(hint)))
    if dataclasses.is_dataclass(hint):
        names = ", ".join(field.name for field in dataclasses.fields(hint))
        return f"give a mapping of {names}"
    if _is_scalar(hint):
        kinds = _kinds(hint)
        whole_only = int in kinds and float not in kinds
        words = [
            "a whole number" if whole_only and kind is int else SCALARS[get_origin(kind) or kind]
            for kind in kinds
        ]
        return "give " + " or ".join(dict.fromkeys(words))
    if get_origin(hint) is tuple:
        return "give a list"
    return {int: "give a whole number", str: "give text"}.get(hint, "give a mapping, key: value")


def _locate_in_data(data: object, loc: KeyPath) -> tuple[KeyPath, object]:
    """Return the parts of pydantic's location that are in the data, and the value there.

    The location also names the branches of a union, and a missing key.
    """
    path: KeyPath = ()
    for part in loc:
        if isinstance(data, list):
            if not isinstance(part, int) or part >= len(data):
                continue
            data = data[part]
        elif isinstance(data, dict) and part in data:
            data = data[part]
        else:
            continue
        path = (*path, part)
    return path, data


def _hint_at(cls: type, path: KeyPath) -> Any:
    """Return the type that the dataclass `cls` declares at a path, without `| None`."""
    hint: Any = cls
    for part in path:
        if isinstance(part, int):  # an index of a list
            hint = next(iter(get_args(hint)), None)
        elif get_origin(hint) in (dict, Mapping):
            hint = get_args(hint)[1]
        else:
            hint = _hints(hint).get(part) if dataclasses.is_dataclass(hint) else None
        inner = _kinds(hint)
        if get_origin(hint) is not Literal and len(inner) == 1:
            hint = inner[0]
    return hint


def _kinds(hint: Any) -> list[Any]:
    """Return the arguments of a type, without None."""
    return [kind for kind in get_args(hint) if kind is not type(None)]


def _is_scalar(hint: Any) -> bool:
    """Return whether a type is a union of scalars: pydantic reports each of its members."""
    is_union = get_origin(hint) in (Union, UnionType)
    kinds = [get_origin(kind) or kind for kind in _kinds(hint)]
    return is_union and len(kinds) > 1 and all(kind in SCALARS for kind in kinds)


def _without_renamed(problems: list[Problem]) -> list[Problem]:
    """Drop `metric: is missing` where `metrc: did you mean 'metric'?` covers it."""
    hints = {(*problem.path[:-1], problem.fix) for problem in problems if problem.at_key}
    return [
        problem
        for problem in problems
        if problem.message != "is missing"
        or (*problem.path[:-1], f"did you mean {problem.path[-1]!r}?") not in hints
    ]
