"""The key `warm_start`: sweeps of the past whose trials this one begins with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator

from hposvc.reading.problems import Problem, SpecError, no_such, shown

KEYS = ("from", "top")


@dataclass(frozen=True)
class WarmStart:
    """Earlier trials as prior data."""

    sweeps: tuple[str, ...]  # ids; `from` in the document, a word that Python keeps to itself
    top: int = 0  # so many of their best configurations are tried first


def read(value: object) -> WarmStart:
    """What a mapping of `from` and `top` says."""
    if not isinstance(value, Mapping):
        raise ValueError(f"is {shown(value)}; give a mapping of {', '.join(KEYS)}")
    problems = [
        Problem((key,), no_such("key", key, KEYS), at_key=True) for key in value if key not in KEYS
    ]
    if "from" not in value:
        problems.append(Problem(("from",), "is missing; give the id of a sweep", at_key=True))
    given, top = value.get("from", ()), value.get("top", 0)
    sweeps = [given] if isinstance(given, str) else given
    if not isinstance(sweeps, list | tuple) or not all(isinstance(one, str) for one in sweeps):
        problems.append(Problem(("from",), f"is {shown(given)}; give the id of a sweep, or a list"))
    elif "from" in value and not (sweeps and all(sweeps)):
        problems.append(Problem(("from",), "is empty; give the id of a sweep, or a list"))
    elif len(set(sweeps)) < len(sweeps):
        problems.append(Problem(("from",), "names a sweep twice; remove one"))
    if not isinstance(top, int) or isinstance(top, bool) or top < 0:
        problems.append(Problem(("top",), f"is {shown(top)}; give a whole number from 0 up"))
    if problems:
        raise SpecError(problems)
    return WarmStart(tuple(sweeps), top)


def written(warm: WarmStart) -> dict[str, Any]:
    """The mapping that `read` takes."""
    return {"from": list(warm.sweeps), "top": warm.top}


Earlier = Annotated[WarmStart, PlainValidator(read)]
