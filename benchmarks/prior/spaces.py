"""Spaces as people write them: names, ranges and subsets that differ from table to table.

A model says which hyperparameters it has, under all of their names, with the widest range; `draw`
writes a space of some of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator

from searchers import Choice, Float, Int, Space

Params = Mapping[str, Any]
When = Mapping[str, tuple[Any, ...]]
WIDE = 0.35  # chance that a range is as wide as it gets
LISTED = 0.2  # chance that a number is a choice among levels
SOME = 0.35  # chance that a choice leaves one of its values out
STEPS = (1.0, 2.0, 3.0, 5.0, 10.0)  # ends of logarithmic ranges, times a power of ten
LEVELS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 96, 128, 160, 200, 256)


@dataclass(frozen=True)
class Number:
    """A hyperparameter in a range; the first name is what the model calls it."""

    names: tuple[str, ...]
    low: float
    high: float
    default: Any
    log: bool = False
    whole: bool = False
    share: float = 0.7  # of the tables have it
    levels: tuple[Any, ...] = ()
    when: When = field(default_factory=dict)  # by the models' own names and values


@dataclass(frozen=True)
class Options:
    """A hyperparameter with a few values, each under one name or more."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    default: Any
    share: float = 0.7
    when: When = field(default_factory=dict)


Parameter = Number | Options


def draw(parameters: Sequence[Parameter], rng: Generator) -> Space:
    """Return a space of some of the parameters, with names and ranges drawn by `rng`."""
    domains: dict[str, Any] = {}
    called: dict[str, tuple[str, Mapping[Any, Any]]] = {}  # own name: written name, values
    for parameter in parameters:
        if rng.random() >= parameter.share:
            continue
        when = _condition(parameter, parameters, called)
        if when is None:
            continue
        own = parameter.names[0]
        name = str(rng.choice([one for one in parameter.names if one not in domains]))
        if isinstance(parameter, Number):
            domains[name], called[own] = _range(parameter, when, rng), (name, {})
        else:
            values = _values(parameter, rng)
            domains[name] = Choice(tuple(values.values()), when=when)
            called[own] = name, values
    return Space(domains)


def own_names(parameters: Sequence[Parameter], params: Params) -> dict[str, Any]:
    """Return a configuration in the model's own names and values, with its defaults."""
    own = {parameter.names[0]: parameter.default for parameter in parameters}
    for name, value in params.items():
        parameter = next(one for one in parameters if name in one.names)
        if isinstance(parameter, Options):
            value = next(same[0] for same in parameter.values if value in same)
        own[parameter.names[0]] = value
    return own


def _condition(
    parameter: Parameter,
    parameters: Sequence[Parameter],
    called: Mapping[str, tuple[str, Mapping[Any, Any]]],
) -> dict[str, tuple[Any, ...]] | None:
    """The condition in written names; None: it never holds."""
    when: dict[str, tuple[Any, ...]] = {}
    for parent, allowed in parameter.when.items():
        if parent not in called:
            default = next(one.default for one in parameters if one.names[0] == parent)
            if default not in allowed:
                return None
            continue
        name, values = called[parent]
        written = tuple(values[one] for one in allowed if one in values)
        if not written:
            return None
        if len(written) < len(values):
            when[name] = written
    return when


def _values(options: Options, rng: Generator) -> dict[Any, Any]:
    """The written value of each own value."""
    kept = list(options.values)
    if len(kept) > 2 and rng.random() < SOME:
        kept.pop(int(rng.integers(len(kept))))
    dialect = int(rng.integers(3))
    return {same[0]: same[dialect % len(same)] for same in kept}


def _range(number: Number, when: dict[str, tuple[Any, ...]], rng: Generator) -> Any:
    forward = math.log if number.log else float
    backward = math.exp if number.log else float
    low, high = forward(number.low), forward(number.high)
    part = 1.0 if rng.random() < WIDE else rng.uniform(0.4, 0.85)
    start = low + rng.random() * (1 - part) * (high - low)
    ends = [backward(start), backward(start + part * (high - low))]
    ends = [_rounded(number, end) for end in ends]
    if number.levels and rng.random() < LISTED:
        levels = tuple(level for level in number.levels if ends[0] <= level <= ends[1])
        if len(levels) > 2:
            return Choice(levels, ordered=True, when=when)
    if number.whole:
        first, last = (round(end) for end in ends)
        return Int(first, max(last, first + 1), log=number.log, when=when)
    return Float(ends[0], ends[1], log=number.log, when=when)


def _rounded(number: Number, end: float) -> float:
    if number.log and number.whole:
        near = min(LEVELS, key=lambda level: abs(math.log(level / end)))
    elif number.log:
        power = 10.0 ** math.floor(math.log10(end) + 1e-9)
        near = power * min(STEPS, key=lambda step: abs(math.log(step * power / end)))
    else:
        near = end
    return min(max(float(f"{near:.2g}"), number.low), number.high)


def sample(space: Space, rng: Generator) -> dict[str, Any]:
    """Return a random configuration, its numbers with four digits, as short as they are precise."""
    params = space.sample(rng)
    for name, value in params.items():
        domain = space[name]
        if isinstance(domain, Float) and isinstance(value, float):
            params[name] = float(np.clip(float(f"{value:.4g}"), domain.low, domain.high))
    return params
