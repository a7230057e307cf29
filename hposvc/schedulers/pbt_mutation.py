"""Exploration in PBT: how the values of a copied configuration may change.

The option `mutate` declares a move for each parameter that may change:

* a range `{min, max, log}`, a part of the parameter's range: the value is multiplied by 0.8 or 1.2
  within it. Keys left out are the parameter's own, so `{}` is its whole range, or all its choices;
* a list: the value moves to a neighbour on the scale; values without an order stay as they are;
* a factor such as 1.5: the value is multiplied or divided by it, within the parameter's range.

A share of a total takes `{}` or a factor, and the other shares make up for what changes. With
probability `resample` the value is instead drawn afresh from the range or the list: by the
parameter's weights or normal distribution if that is its own range, or all its choices. A whole or
stepped number moves by at least one step. A parameter that becomes active is drawn afresh too.

Source: Jaderberg et al., Population Based Training of Neural Networks (2017), §3 and §4.1.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from numpy.random import Generator

from searchers import (
    MIN_MOVE,
    Choice,
    Constant,
    Domain,
    Float,
    Int,
    Params,
    Share,
    Space,
    SpaceError,
    Tied,
    Value,
    draw,
    identity,
    is_number,
    nearest,
)

RANGE = ("min", "max", "log")


class Move(Protocol):
    """A rule of how a parameter's value may change."""

    def moved(self, value: Value, rng: Generator) -> Value:
        """Return a value a little away from `value`."""

    def fresh(self, rng: Generator) -> Value:
        """Draw any of the values that the parameter may take."""


@dataclass(frozen=True)
class Within:
    """A move within a range, to 0.8 or 1.2 times the value."""

    domain: Float | Int | Share

    def moved(self, value: Value, rng: Generator) -> Value:
        return self.domain.moved(value, rng)

    def fresh(self, rng: Generator) -> Value:
        return draw(self.domain, rng.random())


@dataclass(frozen=True)
class Among:
    """A move to a neighbour of the value in a list."""

    values: tuple[Value, ...]  # ascending on the parameter's scale, if it has one
    domain: Domain

    def moved(self, value: Value, rng: Generator) -> Value:
        if not _has_order(self.domain):
            in_list = identity(value) in map(identity, self.values)
            return value if in_list else self.fresh(rng)
        scale = [_on_scale(self.domain, listed) for listed in self.values]
        current = _on_scale(self.domain, value)
        grows = rng.random() < 0.5
        index = bisect_right(scale, current) if grows else bisect_left(scale, current) - 1
        return self.values[max(0, min(index, len(scale) - 1))]

    def fresh(self, rng: Generator) -> Value:
        domain = self.domain
        if isinstance(domain, Choice) and domain.weights and len(self.values) == domain.count:
            return draw(domain, rng.random())
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True)
class Scaled:
    """A move by a factor: the value is multiplied or divided by it."""

    factor: float
    domain: Float | Int | Share

    def moved(self, value: Value, rng: Generator) -> Value:
        number = float(value)  # type: ignore[arg-type]  # of a range
        up = rng.random() < 0.5
        if isinstance(self.domain, Share):
            moved = number * (self.factor if up else 1 / self.factor)
            return self.domain.from_unit(self.domain.to_unit(moved))
        change = number * (self.factor if up else 1 / self.factor) - number
        if self.domain.step is not None:
            smallest = float(self.domain.step)
        else:  # 0 can move in a linear range
            smallest = 0.0 if self.domain.log else MIN_MOVE * (self.domain.high - self.domain.low)
        if abs(change) < smallest:
            change = smallest if (up if change == 0 else change > 0) else -smallest
        target = number + change
        unit = self.domain.to_unit(round(target) if isinstance(self.domain, Int) else target)
        return self.domain.from_unit(unit)

    def fresh(self, rng: Generator) -> Value:
        return draw(self.domain, rng.random())


def explore(
    space: Space, params: Params, moves: Mapping[str, Move], resample: float, rng: Generator
) -> dict[str, Value]:
    """Return the configuration with each value in `moves` moved or drawn afresh, within the space.

    If no move is found that satisfies the constraints, the values are kept.
    """

    def choose(name: str) -> Value:
        move = moves.get(name)
        if name not in params:
            return move.fresh(rng) if move else draw(space[name], rng.random())
        if move is None:
            return params[name]
        return move.fresh(rng) if rng.random() < resample else move.moved(params[name], rng)

    return space.change(params, choose)


def read_moves(space: Space, mutate: Mapping[str, object]) -> dict[str, Move]:
    """Return the move of each parameter that may change; see `read_move`."""
    return {
        member: read_move(space[member], declared)
        for name, declared in mutate.items()
        for member in members(space, name)
    }


def members(space: Space, name: str) -> tuple[str, ...]:
    """Return the parameters of a name in `mutate`: itself, or the shares declared under it."""
    return next((each.members for each in space.shares if each.declared == name), (name,))


def read_move(domain: Domain, declared: object) -> Move:
    """Return the move declared for a parameter of this domain.

    Raises:
        SpaceError: the declaration does not fit the parameter; the path is within the declaration.
    """
    if isinstance(domain, Constant):
        constant = f"is a constant of {domain.value!r}"
        raise SpaceError((), f"{constant}; give it a range in parameters, or leave it out here")
    if isinstance(domain, Tied):
        raise SpaceError((), f"takes its value with {domain.key}; name {domain.key} here instead")
    if isinstance(domain, Share):
        return _read_share(domain, declared)
    if isinstance(declared, Mapping):
        return _read_range(domain, declared)
    if isinstance(declared, Sequence) and not isinstance(declared, str | bytes):
        return _read_list(domain, declared)
    if not is_number(declared):
        allowed = "give a range {min, max}, a list of values, or a factor such as 1.2"
        raise SpaceError((), f"is {declared!r}; {allowed}")
    if isinstance(domain, Choice):
        raise SpaceError((), f"is a factor, but it is a choice; {_remedy(domain)}")
    return Scaled(_checked_factor(declared), domain)


def _checked_factor(declared: float) -> float:
    if declared <= 0 or declared == 1:
        raise SpaceError((), f"is {declared}; give a positive factor that is not 1, such as 1.2")
    return float(declared)


def _read_share(share: Share, declared: object) -> Move:
    if is_number(declared):
        return Scaled(_checked_factor(declared), share)
    if declared != {}:
        what = f"is {declared!r}, but it is a share of {share.shares.declared}"
        raise SpaceError((), f"{what}; give {{}} for its whole range, or a factor such as 1.2")
    return Within(share)


def _read_range(domain: Float | Int | Choice, declared: Mapping[str, object]) -> Move:
    for key in declared:
        if key not in RANGE:
            raise SpaceError((str(key),), f"is no key of a range here; {nearest(str(key), RANGE)}")
    if isinstance(domain, Choice):
        if declared:
            raise SpaceError((), f"is a range, but it is a choice; {_remedy(domain)}")
        return Among(domain.values, domain)
    low, high = declared.get("min", domain.low), declared.get("max", domain.high)
    for key, end in (("min", low), ("max", high)):
        problem = domain.problem(end)  # type: ignore[arg-type]  # it may be anything
        if problem:
            raise SpaceError((key,), problem)
    log = declared.get("log", domain.log)
    if not isinstance(log, bool):
        raise SpaceError(("log",), f"is {log!r}; write true or false")
    own = (low, high, log) == (domain.low, domain.high, domain.log)
    normal = domain.normal if own else None
    made = replace(domain, low=low, high=high, log=log, when={}, normal=normal)  # type: ignore[arg-type]
    return Within(made)


def _read_list(domain: Float | Int | Choice, declared: Sequence[object]) -> Among:
    values: dict[Hashable, Value] = {}
    for index, value in enumerate(declared):
        problem = domain.problem(value)  # type: ignore[arg-type]  # it may be anything
        if problem:
            what = "a list has values of the parameter; for factors give one number, such as 1.25"
            raise SpaceError((index,), f"{problem} ({what})")
        checked = cast(Value, value)
        if identity(checked) in values:
            raise SpaceError((index,), f"{value!r} is there twice; remove one")
        values[identity(checked)] = checked
    if len(values) < 2:
        raise SpaceError((), f"has {len(values)} values; give 2 or more, or leave it out")
    ordered = [*values.values()]
    if _has_order(domain):
        ordered.sort(key=lambda value: _on_scale(domain, value))
    return Among(tuple(ordered), domain)


def _has_order(domain: Domain) -> bool:
    return domain.ordered if isinstance(domain, Choice) else True


def _on_scale(domain: Domain, value: Value) -> float:
    return domain.index(value) if isinstance(domain, Choice) else float(value)  # type: ignore[arg-type]


def _remedy(choice: Choice) -> str:
    return f"list some of its values: {', '.join(repr(value) for value in choice.values[:6])}"
