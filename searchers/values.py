"""Parameter values, the identity of a value, and the error of a space."""

import sys
from collections.abc import Mapping, Sequence
from typing import TypeGuard

LARGEST = sys.float_info.max
Value = float | int | str | bool | None
Params = Mapping[str, Value]  # a configuration in user units; inactive parameters are absent
Condition = Mapping[str, tuple[Value, ...]]  # parameter -> allowed values; all must hold


class SpaceError(ValueError):
    """An invalid space, or an invalid configuration of one; `path` says where the fault is."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(tuple(path), message)
        self.path: tuple[str | int, ...] = tuple(path)
        self.message = message

    def __str__(self) -> str:
        location = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path
        )
        return f"{location.lstrip('.')}: {self.message}" if location else self.message

    def under(self, *prefix: str | int) -> "SpaceError":
        """Return this error with `prefix` before its path."""
        return SpaceError((*prefix, *self.path), self.message)


def identity(value: Value) -> tuple[bool, Value]:
    """Return a key that differs between values that Python calls equal: True is not 1."""
    return isinstance(value, bool), value


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether `value` is a finite number and no truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST <= value <= LARGEST  # math.isfinite raises for an integer beyond it


def refusal(value: object) -> str:
    """Return why something is no value, and what to write instead."""
    text = f"is {value!r}; give a finite number, text, bool or null"
    if not isinstance(value, list | tuple) or not all(map(is_value, value)):
        return text
    joined = " ".join(map(str, value))
    return f"{text}; write a list as text, {joined!r}, and split it in your code"


def is_value(value: object) -> TypeGuard[Value]:
    """Return whether `value` is a scalar that a parameter can have: no NaN, no infinity."""
    return value is None or isinstance(value, str | bool) or is_number(value)
