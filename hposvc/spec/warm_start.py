"""The key `warm_start`: earlier sweeps from whose trials a sweep learns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainValidator, TypeAdapter, WithJsonSchema

from hposvc.errors import Problem, SpecError, shown
from hposvc.spec.types import Count
from searchers.names import nearest

KEYS = ("from", "top")
AUTO = "auto"
IDS = f"give {AUTO}, the id of a sweep, or a list"


@dataclass(frozen=True)
class WarmStart:
    """Earlier sweeps whose trials are prior data."""

    # Ids, `from` in the document; none: `auto`, they are found when the sweep is made.
    sweeps: tuple[str, ...]
    top: Count = 0  # how many of their best configurations are tried first
    place: str = field(default="", compare=False)  # of `from` in the document; empty: recorded

    @property
    def is_auto(self) -> bool:
        """Whether the sweeps are still to be found."""
        return not self.sweeps


def read(value: object) -> WarmStart:
    """Return the warm start in the word `auto`, or in a mapping of `from` and `top`."""
    if value == AUTO:
        return WarmStart(())
    if not isinstance(value, Mapping):
        raise ValueError(f"is {shown(value)}; give {AUTO}, or a mapping of {', '.join(KEYS)}")
    problems = [
        Problem((key,), "no such key", nearest(key, KEYS), at_key=True)
        for key in value
        if key not in KEYS
    ]
    if "from" not in value:
        problems.append(
            Problem(("from",), "is missing", f"give {AUTO}, or the id of a sweep", at_key=True)
        )
    source, top = value.get("from", ()), value.get("top", 0)
    sweeps = [source] if isinstance(source, str) else source
    if not isinstance(sweeps, list | tuple) or not all(isinstance(sweep, str) for sweep in sweeps):
        problems.append(Problem(("from",), f"is {shown(source)}", IDS))
    elif "from" in value and not (sweeps and all(sweeps)):
        problems.append(Problem(("from",), "is empty", IDS))
    elif len(set(sweeps)) < len(sweeps):
        problems.append(Problem(("from",), "names a sweep twice", "remove one"))
    if not isinstance(top, int) or isinstance(top, bool) or top < 0:
        problems.append(Problem(("top",), f"is {shown(top)}", "give a whole number from 0 up"))
    if problems:
        raise SpecError(problems)
    return WarmStart(() if source == AUTO else tuple(sweeps), top)


def to_mapping(warm: WarmStart) -> dict[str, Any]:
    """Return the mapping that `read` reads."""
    return {"from": AUTO if warm.is_auto else list(warm.sweeps), "top": warm.top}


_ID = {"type": "string", "minLength": 1}
_MAPPING = {
    "type": "object",
    "properties": {
        "from": {"anyOf": [_ID, {"type": "array", "items": _ID, "minItems": 1}]},
        "top": {**TypeAdapter(Count).json_schema(), "default": 0},
    },
    **{"required": ["from"], "additionalProperties": False},
}
_SCHEMA = {"anyOf": [{"const": AUTO}, _MAPPING]}
WarmStartSection = Annotated[WarmStart, PlainValidator(read), WithJsonSchema(_SCHEMA)]
