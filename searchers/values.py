"""Values of parameters, what makes two of them the same, and the error of a space."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

Value = float | int | str | bool | None
Params = Mapping[str, Value]  # a configuration in user units; inactive parameters are absent
Condition = Mapping[str, tuple[Value, ...]]  # parameter -> allowed values; all must hold


class SpaceError(ValueError):
    """A space, or a configuration of it, that makes no sense; `path` says where."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(tuple(path), message)
        self.path: tuple[str | int, ...] = tuple(path)
        self.message = message

    def __str__(self) -> str:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"{where.lstrip('.')}: {self.message}" if where else self.message

    def under(self, *prefix: str | int) -> "SpaceError":
        """The same error, seen from further out."""
        return SpaceError((*prefix, *self.path), self.message)


def identity(value: Value) -> tuple[bool, Value]:
    """What makes a value itself: unlike in Python, True is not 1."""
    return isinstance(value, bool), value


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a finite number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_value(value: object) -> TypeGuard[Value]:
    """Whether `value` is a scalar that a parameter can have: no NaN, no infinity."""
    return value is None or isinstance(value, str | bool) or is_number(value)
