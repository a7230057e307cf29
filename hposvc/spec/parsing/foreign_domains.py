"""Ranges of Ray Tune and Optuna, given as parameters, converted to declarations of the spec.

They are recognized by the names of their classes, so that neither library is imported. A range
becomes plain data with the same values, {min: ..., max: ..., type: ...} or {values: ...}.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any

from hposvc.errors import KeyPath, fail
from searchers import ends_of

TUNE = "ray.tune.search.sample"
OPTUNA = "optuna.distributions"
GRID = "give tune.choice([...]) or {values: [...]}; search by grid tries them all"
CODE = (
    "is code that draws a value; give a range, or let a function suggest what depends on what "
    "(parameters: {space: module:function}, Space.from_function)"
)


def declared(value: Any, *path: str | int) -> object:
    """Return the declaration of a foreign range; return any other value as it is.

    Raises:
        SpecError: no declaration can hold the range.
    """
    if isinstance(value, Mapping) and value.keys() == {"grid_search"}:
        raise fail("is Tune's grid_search", *path, fix=GRID)
    for kind in _kinds(value):
        if kind in READERS:
            return READERS[kind](value, path)
    return value


def object_message(value: object, path: KeyPath) -> str:
    """Return the error message for a Python object at `path` of a document."""
    kind = _kinds(value)[0]
    if not path or path[0] != "parameters" or READERS.keys().isdisjoint(_kinds(value)):
        return f"is a Python object ({kind}); give numbers, text, lists and mappings"
    return f"is a range ({kind}) within a list or another range; give it a name of its own"


def _kinds(value: object) -> list[str]:
    """Return the names of an object's class and of its base classes, nearest first."""
    return [f"{cls.__module__}.{cls.__qualname__}" for cls in type(value).__mro__]


def _tune_range(domain: Any, path: KeyPath) -> object:
    log, q, normal = _tune_sampler(domain, path)
    is_int = f"{TUNE}.Integer" in _kinds(domain)
    low, high = (domain.lower, domain.upper) if normal is None else ends_of(*normal)
    if not all(isinstance(end, Real) and math.isfinite(end) for end in (low, high)):
        raise fail("has no ends", *path, fix="give tune.uniform(low, high), or {min, max}")
    if is_int and q in (None, 1):
        high -= 1  # tune.randint excludes the upper end, and so does tune.qrandint with q=1
    elif q is not None:
        low, high = _multiple(low, q, math.ceil), _multiple(high, q, math.floor)
    if low > high and (is_int or q is not None):
        raise fail(f"{domain.lower} to {domain.upper} holds no value", *path, fix="widen it")
    made = _range("int" if is_int else "float", low, high, log, q)
    if normal is None or not isinstance(made, dict):
        return made
    return {**made, "normal": {"mean": normal[0], "deviation": normal[1]}}


def _tune_sampler(
    domain: Any, path: KeyPath
) -> tuple[bool, float | None, tuple[float, float] | None]:
    """Return how a Tune domain is drawn.

    Returns:
        Whether it is drawn on a log scale, the q of a quantized one, and the mean and the deviation
        of a normal one.
    """
    sampler, q = domain.get_sampler(), None
    if f"{TUNE}.Quantized" in _kinds(sampler):
        q, sampler = sampler.q, sampler.get_sampler()
    kinds = _kinds(sampler)
    if f"{TUNE}.Normal" in kinds:
        return False, q, (sampler.mean, sampler.sd)
    if f"{TUNE}.LogUniform" not in kinds and f"{TUNE}.Uniform" not in kinds:
        raise fail(f"is drawn by {kinds[0]}, which is none of Tune's", *path, fix="give {min, max}")
    return f"{TUNE}.LogUniform" in kinds, q, None


def _multiple(bound: float, q: float, inward: Callable[[float], int]) -> float:
    """Return the multiple of q next to a bound, as Tune rounds it; a multiple stays as written."""
    share = bound / q
    if not math.isclose(share, round(share)):
        return inward(share) * q
    return bound if isinstance(bound, float) else round(share) * q


def _tune_choice(domain: Any, path: KeyPath) -> object:
    if domain.is_grid():
        raise fail("is Tune's grid_search", *path, fix=GRID)
    return {"values": list(domain.categories)}


def _tune_function(domain: Any, path: KeyPath) -> object:
    raise fail(f"tune.sample_from {CODE}", *path)


def _optuna_range(kind: str, distribution: Any, path: KeyPath) -> object:
    d = distribution
    return _range(kind, d.low, d.high, d.log, d.step)


def _optuna_choice(distribution: Any, path: KeyPath) -> object:
    return {"values": list(distribution.choices)}


def _range(kind: str, low: float, high: float, log: bool, step: float | None) -> object:
    """Return the declaration of a range, or its only value."""
    if low == high:
        return int(low) if kind == "int" else float(low)
    declaration: dict[str, object] = {"min": low, "max": high, "type": kind}
    if log:
        declaration["log"] = True
    if step is not None and (kind == "float" or step != 1):
        declaration["step"] = step
    return declaration


READERS: dict[str, Callable[[Any, KeyPath], object]] = {
    f"{TUNE}.Float": _tune_range,
    f"{TUNE}.Integer": _tune_range,
    f"{TUNE}.Categorical": _tune_choice,
    f"{TUNE}.Function": _tune_function,
    f"{OPTUNA}.FloatDistribution": partial(_optuna_range, "float"),
    f"{OPTUNA}.IntDistribution": partial(_optuna_range, "int"),
    f"{OPTUNA}.CategoricalDistribution": _optuna_choice,
}
