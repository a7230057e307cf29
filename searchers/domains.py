"""The domains of parameters: Choice, Constant and Tied here, Float and Int in `ranges`, Share."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from numpy.random import Generator

from searchers.distributions import Weighted, check_weights
from searchers.ranges import Float, Int
from searchers.shares import Share
from searchers.values import (
    Condition,
    Params,
    SpaceError,
    Value,
    as_text,
    copied,
    identity,
    is_structured,
    is_value,
    refusal,
)

__all__ = ["Choice", "Constant", "Domain", "Float", "Int", "Share", "Tied", "has_lists"]

MAX_VALUES = 10_000


@dataclass(frozen=True)
class Choice:
    """A choice among values; `ordered` values are levels of a scale, in the order given.

    With `weights`, one for each value, a value is drawn as often as its share of their sum.
    """

    values: tuple[Value, ...]
    ordered: bool = False
    when: Condition = field(default_factory=dict, hash=False)
    weights: tuple[float, ...] = ()  # empty: all values are drawn alike

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(copied, self.values)))
        if not 1 <= len(self.values) <= MAX_VALUES:
            raise SpaceError(
                ("values",), f"has {len(self.values)} values; give 1 to {MAX_VALUES:,}"
            )
        for index, value in enumerate(self.values):
            if not is_value(value):
                raise SpaceError(("values", index), refusal(value))
        for index, value in enumerate(self.values):
            if self._indices[identity(value)] != index:
                raise SpaceError(("values", index), f"{value!r} is there twice; remove one")
            text = as_text(value) if is_structured(value) else None
            if text is not None and identity(text) in self._indices:
                message = f"is {text} as a list, and the text {text!r} is there too; remove one"
                raise SpaceError(("values", index), message)
        if self.ordered and len(self.values) < 2:
            raise SpaceError(("ordered",), "a single value has no order; leave it out")
        object.__setattr__(self, "weights", check_weights(self.weights, len(self.values)))

    def __hash__(self) -> int:
        return hash((*map(identity, self.values), self.ordered, self.weights))

    @cached_property
    def distribution(self) -> Weighted | None:
        """How values are drawn; None: all alike."""
        return Weighted(self.weights) if self.weights else None

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with `value`; None: nothing."""
        if is_value(value) and identity(value) in self._indices:
            return None
        shown = ", ".join(repr(allowed) for allowed in self.values[:12])
        return f"is {value!r}; choose from {shown}{', ...' if self.count > 12 else ''}"

    def index(self, value: Value) -> int:
        """Return the position of `value` among the values."""
        return self._indices[identity(value)]

    def cast(self, value: Value) -> Value:
        """Return a valid value as it stands among the values: 2.0 may become 2."""
        return self.values[self.index(value)]

    def to_unit(self, value: Value) -> float:
        return (self._indices[identity(value)] + 0.5) / len(self.values)

    def from_unit(self, unit: float) -> Value:
        count = len(self.values)
        return self.values[max(0, min(int(unit * count), count - 1))]

    def moved(self, value: Value, rng: Generator) -> Value:
        """Make PBT's move: to a neighbour on the scale; an unordered value stays."""
        if not self.ordered:
            return value
        index = self.index(value) + (1 if rng.random() < 0.5 else -1)
        return self.values[max(0, min(index, self.count - 1))]

    def grid(self, resolution: int) -> Sequence[Value]:
        """Return all values, whatever the resolution."""
        return self.values

    @cached_property
    def _indices(self) -> dict[Hashable, int]:
        pairs = enumerate(self.values)
        return {identity(value): index for index, value in reversed(list(pairs))}


@dataclass(frozen=True)
class Constant:
    """A single value, which is not searched."""

    value: Value
    when: Condition = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not is_value(self.value):
            raise SpaceError((), refusal(self.value))
        object.__setattr__(self, "value", copied(self.value))

    def __hash__(self) -> int:
        return hash(identity(self.value))

    @property
    def distribution(self) -> None:
        """How values are drawn: there is nothing to draw."""

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with `value`; None: nothing."""
        if identity(value) == identity(self.value):
            return None
        return f"is {value!r}, but it is a constant of {self.value!r}"

    @property
    def count(self) -> int:
        """The number of values."""
        return 1

    def cast(self, value: Value) -> Value:
        """Return the constant."""
        return self.value

    def from_unit(self, unit: float) -> Value:
        return self.value

    def to_unit(self, value: Value) -> float:
        return 0.5

    def moved(self, value: Value, rng: Generator) -> Value:
        """Make PBT's move: none."""
        return self.value

    def grid(self, resolution: int) -> Sequence[Value]:
        """Return the constant alone."""
        return (self.value,)


@dataclass(frozen=True)
class Tied:
    """A value that comes with the choice of another parameter; it is not searched by itself.

    Several parameters that are declared as one list of mappings are tied. One of them, the key, is
    a Choice. The others are Tied: they have their value at the place of the key's value.
    """

    key: str
    keys: tuple[Value, ...]  # the values of the key, no two equal
    values: tuple[Value, ...]  # the value here, for each value of the key
    declared: str = ""  # the name under which the tied parameters are declared together
    when: Condition = field(default_factory=dict, hash=False)  # also that of the key

    def __hash__(self) -> int:
        return hash((self.key, *map(identity, self.values)))

    @property
    def distribution(self) -> None:
        """How values are drawn: there is nothing to draw."""

    def value_in(self, params: Params) -> Value:
        """Return the value in a configuration that has the key."""
        return self.values[self._indices[identity(params[self.key])]]

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with `value` whatever the key; None: nothing."""
        if is_value(value) and identity(value) in map(identity, self.values):
            return None
        shown = ", ".join(repr(allowed) for allowed in self.grid(1)[:12])
        return f"is {value!r}; choose from {shown}"

    @property
    def count(self) -> int:
        """The number of values beside one value of the key."""
        return 1

    def cast(self, value: Value) -> Value:
        """Return a valid value as it stands among the values: 2.0 may become 2."""
        return self.values[[*map(identity, self.values)].index(identity(value))]

    def from_unit(self, unit: float) -> Value:
        return self.values[0]

    def to_unit(self, value: Value) -> float:
        return 0.5

    def moved(self, value: Value, rng: Generator) -> Value:
        """Make PBT's move: none, as the value follows the key."""
        return value

    def grid(self, resolution: int) -> Sequence[Value]:
        """Return the distinct values, whatever the resolution."""
        return [*{identity(value): value for value in self.values}.values()]

    @cached_property
    def _indices(self) -> dict[Hashable, int]:
        return {identity(key): index for index, key in enumerate(self.keys)}


Domain = Float | Int | Choice | Constant | Tied | Share


def declared_name(name: str, domain: Domain) -> str:
    """Return the key of `parameters` under which a parameter that is not tied is declared."""
    return domain.shares.declared if isinstance(domain, Share) else name


def has_lists(domain: Domain) -> bool:
    """Return whether a parameter has lists or mappings as values."""
    return not isinstance(domain, Float | Int | Share) and any(map(is_structured, domain.grid(1)))
