"""The types of values of a spec's keys, each with the message for a value that does not fit."""

import math
import re
from contextlib import suppress
from functools import reduce
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
)

from hposvc.errors import Problem, SpecError, shown
from hposvc.events import LAST
from hposvc.spec.registry import REFERENCES, is_reference
from hposvc.text import SECONDS
from searchers import (
    AT_ONCE,
    COUNT,
    STEPS,
    AtMost,
    SpaceError,
    Value,
    check_count,
    is_value,
    read_declared,
    refusal,
)
from trainables.contract import PICKLE, Every, Period

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", re.ASCII)
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)", re.ASCII)
UPDATES = re.compile(r"([1-9][0-9]*) ?steps?", re.ASCII)
STEP_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKmMbB])", re.ASCII)
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|[KMGT]iB|[kMGT]B)", re.ASCII)
BYTES = {"B": 1}
BYTES |= {f"{letter}iB": 1024 ** (place + 1) for place, letter in enumerate("KMGT")}
BYTES |= {f"{letter}B": 1000 ** (place + 1) for place, letter in enumerate("kMGT")}
MAX_BYTES = 2**60
THOUSANDS = {letter: 1000 ** (place + 1) for place, letter in enumerate("kmb")}
# Ray's own grammar of label selectors: a, !a, in(a, b), !in(a, b).
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LABEL_NAME = re.compile(rf"(?:[a-z0-9.-]+/)?{LABEL}", re.ASCII)
SELECTOR = re.compile(rf"!?(?:{LABEL}|in\({LABEL}(?:, ?{LABEL})*\))", re.ASCII)
VERSION = 1  # of the spec's format
CLOSED = ConfigDict(extra="forbid", allow_inf_nan=False)  # for every section


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def read_seconds(value: object) -> float:
    """Return seconds, from a number or a text like `90s`, `2h` or `1h30m`."""
    seconds = math.nan
    if _is_whole(value) or isinstance(value, float):
        seconds = float(value)  # type: ignore[arg-type]
    elif isinstance(value, str) and re.fullmatch(f"({DURATION.pattern})+", value, re.ASCII):
        parts = DURATION.findall(value)
        seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
    if not 0 <= seconds < math.inf:
        raise ValueError(f"is {shown(value)}; give a duration like 90s, 30m, 2h, 1h30m or 3d")
    return seconds


def read_bytes(value: object) -> int:
    """Return bytes, from a number or a text like `4GiB`."""
    size: float = 0
    if isinstance(value, str) and (match := SIZE.fullmatch(value)):
        size = float(match[1]) * BYTES[match[2]]
    elif _is_whole(value):
        size = value  # type: ignore[assignment]
    if not 1 <= size <= MAX_BYTES:
        raise ValueError(f"is {shown(value)}; give a size like 512MiB or 4GiB")
    return int(size)


def read_steps(value: object) -> int:
    """Return a number of steps, from a number or a text like `20k`, `1.5M` or `2B` (billions)."""
    steps: float = 0
    if isinstance(value, str) and (match := STEP_COUNT.fullmatch(value)):
        steps = float(match[1]) * THOUSANDS[match[2].lower()]
    elif _is_whole(value):
        steps = value  # type: ignore[assignment]
    if steps < 1 or steps != int(steps):
        raise ValueError(f"is {shown(value)}; give 1 or more, such as 27, 20k, 1.5M or 2B")
    return int(steps)


def read_interval(value: object) -> Every:
    """Return the interval of checkpoints, from units of fidelity, `500 steps` or a duration.

    Steps are updates of the optimizer.
    """
    if _is_whole(value) and value >= 1:  # type: ignore[operator]
        return value  # type: ignore[return-value]
    if isinstance(value, str) and (match := UPDATES.fullmatch(value)):
        return Period(updates=int(match[1]))
    with suppress(ValueError):
        if isinstance(value, str) and (seconds := read_seconds(value)) > 0:
            return Period(seconds=seconds)
    message = "give a whole number in units of fidelity, or a period like 500 steps or 10m"
    raise ValueError(f"is {shown(value)}; {message}")


def read_every(value: object) -> object:
    """Return an interval of checkpoints as it is written, once checked."""
    read_interval(value)
    return value


def read_parallel(value: object) -> object:
    """Return the number of trials at once, or `auto`."""
    if value == "auto" or (_is_whole(value) and value >= 1):  # type: ignore[operator]
        return value
    raise ValueError(f"is {shown(value)}; give 1 or more, or auto for as many as fit")


def read_retries(value: object) -> object:
    """Return the number of failures that are retried, or `unlimited`."""
    if value == "unlimited" or (_is_whole(value) and value >= 0):  # type: ignore[operator]
        return value
    raise ValueError(f"is {shown(value)}; give 0 or more, or unlimited")


def check_version(version: int) -> int:
    """Return the version of the spec's format, once checked."""
    if version != VERSION:
        raise ValueError(f"is {version}; this hposvc reads version {VERSION}")
    return version


def check_name(text: str) -> str:
    """Return a name that can be part of an id and of a path."""
    if not NAME.fullmatch(text):
        raise ValueError(f"is {shown(text)}; use letters, digits, '.', '_' and '-', 80 at most")
    return text


def check_id(text: str) -> str:
    """Return a text that can be a sweep's id: a name with no other meaning to a command."""
    if text == LAST:
        raise ValueError(f"is {shown(text)}, which means the newest sweep; choose another id")
    return check_name(text)


def check_reference(text: str) -> str:
    """Return a well-formed name of a trainable; whether it exists shows at its import."""
    if not (text.startswith(PICKLE) or is_reference(text)):
        raise ValueError(f"is {shown(text)}; write {REFERENCES}")
    return text


def check_parameters(declared: dict[str, object]) -> dict[str, object]:
    """Return the parameters, each read alone, so that all mistakes are reported at once."""
    try:
        check_count(declared)
    except SpaceError as error:
        raise SpecError([Problem.of_text(error.message)]) from error
    problems = []
    for name, domain in declared.items():
        try:
            read_declared(name, domain)
        except SpaceError as error:
            problems.append(Problem.of_text(error.message, name, *error.path))
    if problems:
        raise SpecError(problems)
    return declared


def read_labels(value: object) -> dict[str, str]:
    """Return the labels required of nodes, as Ray's selectors; a list allows any of its values."""
    if not isinstance(value, dict):
        raise ValueError(f"is {shown(value)}; give a mapping of label: value, or label: [values]")
    selectors: dict[str, str] = {}
    problems = []
    for name, selector in value.items():
        text = f"in({','.join(map(str, selector))})" if isinstance(selector, list) else selector
        if not isinstance(name, str) or not LABEL_NAME.fullmatch(name):
            fix = "use letters, digits, '.', '_', '-' and one '/'"
            problems.append(Problem((str(name),), "is no name of a label", fix, at_key=True))
        elif not isinstance(text, str) or not SELECTOR.fullmatch(text):
            fix = "give text, a list of texts, or a text after '!'"
            problems.append(Problem((name,), f"is {shown(selector)}", fix))
        else:
            selectors[name] = text.replace(", ", ",")  # Ray 2.60 takes spaces for parts of values
    if problems:
        raise SpecError(problems)
    return selectors


def read_scalar(value: object) -> object:
    """Return a value that is neither a list nor a mapping."""
    if isinstance(value, dict | list):
        raise ValueError(f"is {shown(value)}; give one value: a number, text, true or false")
    return value


def read_parameter_value(value: object) -> object:
    """Return a value that a parameter may have; its own domain checks it."""
    if not is_value(value):
        raise ValueError(refusal(value))
    return value


def text_like(pattern: str) -> WithJsonSchema:
    """Return the JSON schema of texts that match a pattern as a whole."""
    return WithJsonSchema({"type": "string", "pattern": f"^(?:{pattern})$"})


def number_or_text(kind: Literal["number", "integer"], pattern: str, low: float) -> WithJsonSchema:
    """Return the JSON schema of numbers from `low` up, and of texts that match a pattern."""
    text = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return WithJsonSchema({"anyOf": [{"type": kind, "minimum": low}, text]})


def _has_list(key: str) -> dict[str, Any]:
    return {"type": "object", "properties": {key: {"type": "array"}}, "required": [key]}


def _has_number(key: str) -> dict[str, Any]:
    return {"properties": {key: {"not": {"type": "object"}}}, "required": [key]}


SCALAR_SCHEMA: dict[str, Any] = {"type": ["number", "string", "boolean", "null"]}
_VALUE_SCHEMA = {"type": [*SCALAR_SCHEMA["type"], "array"]}
_ENDS = {
    **{"type": "object", "properties": {"min": {"type": "number"}, "max": {"type": "number"}}},
    **{"additionalProperties": False, "minProperties": 1},
}
_VALUES = {
    "anyOf": [SCALAR_SCHEMA, {"type": "array", "items": _VALUE_SCHEMA, "minItems": 1}, _ENDS]
}
_WHEN = {"type": "object", "additionalProperties": _VALUES, "minProperties": 1}
_RANGE = {
    **{"min": {"type": "number"}, "max": {"type": "number"}, "log": {"type": "boolean"}},
    **{"step": {"type": "number"}, "type": {"enum": ["int", "float"]}, "when": _WHEN},
    "normal": {
        **{"type": "object", "additionalProperties": False, "required": ["mean", "deviation"]},
        "properties": {
            "mean": {"type": "number"},
            "deviation": {"type": "number", "exclusiveMinimum": 0},
        },
    },
}
_TIED = {"type": "object", "additionalProperties": _VALUE_SCHEMA, "minProperties": 1}
_CHOICE = {
    **{"values": {"type": "array", "items": {"anyOf": [_VALUE_SCHEMA, _TIED]}, "minItems": 1}},
    **{"ordered": {"type": "boolean"}, "when": _WHEN},
    "weights": {
        **{"type": "array", "minItems": 1},
        "items": {"type": "number", "exclusiveMinimum": 0},
    },
}
_BY_SHARE = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
    ]
}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_SHARES = {
    "shares": {
        "anyOf": [
            {"type": "integer", "minimum": 2},
            {"type": "array", "items": {"type": "string"}, "minItems": 2},
        ]
    },
    **{"total": _POSITIVE, "step": _POSITIVE, "zeros": {"type": "boolean"}},
    **{"min": _BY_SHARE, "max": _BY_SHARE, "concentration": _POSITIVE, "when": _WHEN},
    "prior": {
        "anyOf": [
            {"type": "array", "items": _POSITIVE, "minItems": 2},
            {"type": "object", "additionalProperties": _POSITIVE},
        ]
    },
}
_SOURCES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_GROUP = {"not": {"additionalProperties": SCALAR_SCHEMA}}  # what it holds: see json_schema.py
_KINDS = (  # of parameters: what tells each, and its keys
    (
        {"type": "object", "required": ["shares"], "properties": {"shares": _SHARES["shares"]}},
        {"properties": _SHARES, "additionalProperties": False},
    ),
    (_has_list("values"), {"properties": _CHOICE, "additionalProperties": False}),
    (
        {"type": "object", "anyOf": [_has_number("min"), _has_number("max")]},
        {"properties": _RANGE, "additionalProperties": False, "required": ["min", "max"]},
    ),
    (_has_list("variants"), {"properties": {"variants": _SOURCES}, "additionalProperties": False}),
    ({"type": "object"}, _GROUP),
)
_DOMAIN = reduce(
    lambda others, kind: {"if": kind[0], "then": kind[1], "else": others},
    reversed(_KINDS),
    SCALAR_SCHEMA,
)
_PERIOD = f"{UPDATES.pattern}|({DURATION.pattern})+"
_LABEL = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

T = TypeVar("T")
EXTENDABLE = "`hposvc extend` may change it"
DESCRIPTIVE = "it changes neither what a sweep finds nor how long that takes"
Extendable = Annotated[T, EXTENDABLE]  # the rest of a spec is what makes results comparable
Descriptive = Annotated[T, DESCRIPTIVE]

Word = Annotated[str, Field(min_length=1)]
# Bounds are for new specs, like the rules between keys: a recorded spec keeps its numbers.
Positive = Annotated[int, Field(ge=1), AtMost(COUNT)]
AtOnce = Annotated[int, Field(ge=1), AtMost(AT_ONCE)]
Count = Annotated[int, Field(ge=0), AtMost(COUNT)]
Seconds = Annotated[
    float,
    BeforeValidator(read_seconds),
    number_or_text("number", f"({DURATION.pattern})+", 0),
    AtMost(1e9),  # 30 years
]
Hours = Annotated[float, Field(gt=0), AtMost(1e9)]
Amount = Annotated[float, Field(ge=0), AtMost(1e12)]
Steps = Annotated[
    int,
    BeforeValidator(read_steps),
    number_or_text("integer", STEP_COUNT.pattern, 1),
    AtMost(STEPS),
]
Bytes = Annotated[int, BeforeValidator(read_bytes), number_or_text("integer", SIZE.pattern, 1)]
Interval = Annotated[
    int | str,
    PlainValidator(read_every),
    number_or_text("integer", _PERIOD, 1),
    AtMost(STEPS),
]
Parallel = Annotated[
    int | Literal["auto"],
    PlainValidator(read_parallel),
    number_or_text("integer", "auto", 1),
    AtMost(AT_ONCE, "write auto for as many as fit"),
]
Retries = Annotated[
    int | Literal["unlimited"],
    PlainValidator(read_retries),
    number_or_text("integer", "unlimited", 0),
    AtMost(COUNT, "write unlimited for any number"),
]
Version = Annotated[int, AfterValidator(check_version), WithJsonSchema({"const": VERSION})]
Name = Annotated[str, AfterValidator(check_name), text_like(NAME.pattern)]
Reference = Annotated[str, AfterValidator(check_reference)]
Parameters = Annotated[
    dict[str, object],
    AfterValidator(check_parameters),
    WithJsonSchema({"type": "object", "additionalProperties": _DOMAIN, "minProperties": 1}),
]
Labels = Annotated[
    dict[str, str],
    PlainValidator(read_labels),
    WithJsonSchema({"type": "object", "additionalProperties": _LABEL}),
]
Scalar = Annotated[Value, PlainValidator(read_scalar), WithJsonSchema(SCALAR_SCHEMA)]
ParameterValue = Annotated[
    Value,
    PlainValidator(read_parameter_value),
    WithJsonSchema({"type": [*SCALAR_SCHEMA["type"], "array", "object"]}),  # a group's, by name
]
