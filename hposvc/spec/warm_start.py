"""The key `warm_start`: earlier sweeps from whose trials a sweep learns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from hposvc.errors import Problem, SpecError, no_such, shown

KEYS = ("from", "top")


@dataclass(frozen=True)
class WarmStart:
    """Earlier sweeps whose trials are prior data."""

    sweeps: tuple[str, ...]  # ids; `from` in the document, which is a reserved word of Python
    top: int = 0  # how many of their best configurations are tried first


def read(value: object) -> WarmStart:
    """Return the warm start in a mapping of `from` and `top`."""
    if not isinstance(value, Mapping):
        raise ValueError(f"is {shown(value)}; give a mapping of {', '.join(KEYS)}")
    problems = [
        Problem((key,), no_such("key", key, KEYS), at_key=True) for key in value if key not in KEYS
    ]
    if "from" not in value:
        problems.append(Problem(("from",), "is missing; give the id of a sweep", at_key=True))
    source, top = value.get("from", ()), value.get("top", 0)
    sweeps = [source] if isinstance(source, str) else source
    if not isinstance(sweeps, list | tuple) or not all(isinstance(sweep, str) for sweep in sweeps):
        problems.append(
            Problem(("from",), f"is {shown(source)}; give the id of a sweep, or a list")
        )
    elif "from" in value and not (sweeps and all(sweeps)):
        problems.append(Problem(("from",), "is empty; give the id of a sweep, or a list"))
    elif len(set(sweeps)) < len(sweeps):
        problems.append(Problem(("from",), "names a sweep twice; remove one"))
    if not isinstance(top, int) or isinstance(top, bool) or top < 0:
        problems.append(Problem(("top",), f"is {shown(top)}; give a whole number from 0 up"))
    if problems:
        raise SpecError(problems)
    return WarmStart(tuple(sweeps), top)


def to_mapping(warm: WarmStart) -> dict[str, Any]:
    """Return the mapping that `read` reads."""
    return {"from": list(warm.sweeps), "top": warm.top}


_ID = {"type": "string", "minLength": 1}
_SCHEMA = {
    "type": "object",
    "properties": {
        "from": {"anyOf": [_ID, {"type": "array", "items": _ID, "minItems": 1}]},
        "top": {"type": "integer", "minimum": 0, "default": 0},
    },
    **{"required": ["from"], "additionalProperties": False},
}
WarmStartSection = Annotated[WarmStart, PlainValidator(read), WithJsonSchema(_SCHEMA)]
