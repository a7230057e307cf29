"""How a copied configuration is explored: which of its values may change, and how.

A move is declared for each name that may change:

* a range `{min, max, log}`: a part of the parameter's own, in which its value is multiplied by 0.8
  or 1.2; what is left out is the parameter's, so `{}` is all of its range or of its values;
* a list: the value goes to a neighbour on the scale; where the values have no order, it stays;
* a factor such as 1.5: the value is multiplied or divided by it, within the parameter's range.

With probability `resample` the value is instead drawn afresh, from the range or the list. A whole
or stepped number moves by one step at least. What becomes active is drawn afresh, too.

Source: Jaderberg et al., Population Based Training of Neural Networks (2017), §3 and §4.1.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from numpy.random import Generator

from searchers.domains import Choice, Constant, Domain, Float, Int
from searchers.names import nearest
from searchers.ranges import LEAST_MOVE
from searchers.space import Space
from searchers.values import Params, SpaceError, Value, identity, is_number

RANGE = ("min", "max", "log")


class Move(Protocol):
    """How one parameter may change."""

    def moved(self, value: Value, rng: Generator) -> Value:
        """A value a little away from the one given."""

    def fresh(self, rng: Generator) -> Value:
        """Any of the values that it may take."""


@dataclass(frozen=True)
class Within:
    """A range: 0.8 or 1.2 times the value."""

    domain: Float | Int

    def moved(self, value: Value, rng: Generator) -> Value:
        return self.domain.moved(value, rng)

    def fresh(self, rng: Generator) -> Value:
        return self.domain.from_unit(rng.random())


@dataclass(frozen=True)
class Among:
    """A list, ascending on the parameter's scale where it has one: a neighbour of the value."""

    values: tuple[Value, ...]
    domain: Domain

    def moved(self, value: Value, rng: Generator) -> Value:
        if not _has_order(self.domain):
            known = identity(value) in map(identity, self.values)
            return value if known else self.fresh(rng)
        scale = [_on_scale(self.domain, one) for one in self.values]
        here = _on_scale(self.domain, value)
        grows = rng.random() < 0.5
        place = bisect_right(scale, here) if grows else bisect_left(scale, here) - 1
        return self.values[max(0, min(place, len(scale) - 1))]

    def fresh(self, rng: Generator) -> Value:
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True)
class Scaled:
    """A factor: the value times it, or divided by it."""

    factor: float
    domain: Float | Int

    def moved(self, value: Value, rng: Generator) -> Value:
        number = float(value)  # type: ignore[arg-type]  # of a range
        up = rng.random() < 0.5
        change = number * (self.factor if up else 1 / self.factor) - number
        least = self._least()
        if abs(change) < least:
            change = least if (up if change == 0 else change > 0) else -least
        target = number + change
        unit = self.domain.to_unit(round(target) if isinstance(self.domain, Int) else target)
        return self.domain.from_unit(unit)

    def fresh(self, rng: Generator) -> Value:
        return self.domain.from_unit(rng.random())

    def _least(self) -> float:
        """The smallest move that is one, so that a linear range's 0 can be left."""
        domain = self.domain
        if domain.step is not None:
            return float(domain.step)
        return 0.0 if domain.log else LEAST_MOVE * (domain.high - domain.low)


def explore(
    space: Space, params: Params, moves: Mapping[str, Move], resample: float, rng: Generator
) -> dict[str, Value]:
    """The configuration with each value that may change moved; it never leaves the space.

    Where no move is found that satisfies the constraints, the values are kept.
    """

    def choose(name: str) -> Value:
        move = moves.get(name)
        if name not in params:
            return move.fresh(rng) if move else space[name].from_unit(rng.random())
        if move is None:
            return params[name]
        return move.fresh(rng) if rng.random() < resample else move.moved(params[name], rng)

    return space.change(params, choose)


def read_move(domain: Domain, declared: object) -> Move:
    """What is declared for a parameter of this domain.

    Raises:
        SpaceError: it does not fit the parameter; with the path within the declaration.
    """
    if isinstance(domain, Constant):
        shown = f"is a constant of {domain.value!r}"
        raise SpaceError((), f"{shown}; give it a range in parameters, or leave it out here")
    if isinstance(declared, Mapping):
        return _read_range(domain, declared)
    if isinstance(declared, Sequence) and not isinstance(declared, str | bytes):
        return _read_list(domain, declared)
    if not is_number(declared):
        allowed = "give a range {min, max}, a list of values, or a factor such as 1.2"
        raise SpaceError((), f"is {declared!r}; {allowed}")
    if isinstance(domain, Choice):
        raise SpaceError((), f"is a factor, but it is a choice; {_some(domain)}")
    if declared <= 0 or declared == 1:
        raise SpaceError((), f"is {declared}; give a positive factor that is not 1, such as 1.2")
    return Scaled(float(declared), domain)


def _read_range(domain: Float | Int | Choice, declared: Mapping[str, object]) -> Move:
    for key in declared:
        if key not in RANGE:
            raise SpaceError((str(key),), f"is no key of a range here; {nearest(str(key), RANGE)}")
    if isinstance(domain, Choice):
        if declared:
            raise SpaceError((), f"is a range, but it is a choice; {_some(domain)}")
        return Among(domain.values, domain)
    low, high = declared.get("min", domain.low), declared.get("max", domain.high)
    for key, end in (("min", low), ("max", high)):
        problem = domain.problem(end)  # type: ignore[arg-type]  # it may be anything
        if problem:
            raise SpaceError((key,), problem)
    log = declared.get("log", domain.log)
    if not isinstance(log, bool):
        raise SpaceError(("log",), f"is {log!r}; write true or false")
    return Within(replace(domain, low=low, high=high, log=log, when={}))  # type: ignore[arg-type]


def _read_list(domain: Float | Int | Choice, declared: Sequence[object]) -> Among:
    values: list[Value] = []
    for index, value in enumerate(declared):
        problem = domain.problem(value)  # type: ignore[arg-type]  # it may be anything
        if problem:
            raise SpaceError((index,), problem)
        if identity(value) in map(identity, values):  # type: ignore[arg-type]
            raise SpaceError((index,), f"{value!r} is there twice; remove one")
        values.append(value)  # type: ignore[arg-type]
    if len(values) < 2:
        raise SpaceError((), f"has {len(values)} values; give 2 or more, or leave it out")
    if _has_order(domain):
        values.sort(key=lambda value: _on_scale(domain, value))
    return Among(tuple(values), domain)


def _has_order(domain: Domain) -> bool:
    return domain.ordered if isinstance(domain, Choice) else True


def _on_scale(domain: Domain, value: Value) -> float:
    return domain.index(value) if isinstance(domain, Choice) else float(value)  # type: ignore[arg-type]


def _some(choice: Choice) -> str:
    return f"list some of its values: {', '.join(repr(value) for value in choice.values[:6])}"
