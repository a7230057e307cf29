"""Parameter values, the identity of a value, its text, and the error of a space.

A value is a number, a text, a truth value or null, or a list or mapping of such values (`[64, 64]`
for the widths of layers). Lists and mappings can't be hashed, so whatever looks values up does so
by their identity; people and programs read them as JSON.
"""

import json
import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeGuard

LARGEST = sys.float_info.max
MAX_DEPTH = 8  # of lists and mappings within a value
Value = float | int | str | bool | list[Any] | dict[str, Any] | None
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


def identity(value: object) -> Hashable:
    """Return a key that differs between values that Python calls equal: True is not 1.

    A tuple is the list of its items.
    """
    if isinstance(value, list | tuple):
        return "list", tuple(map(identity, value))
    if isinstance(value, dict):
        return "mapping", frozenset((key, identity(item)) for key, item in value.items())
    return isinstance(value, bool), value


def as_text(value: object) -> str:
    """Return a value as text; lists and mappings as JSON."""
    return json.dumps(value, ensure_ascii=False) if is_structured(value) else str(value)


def as_cell(value: Value) -> float | int | str | bool | None:
    """Return a value for a cell of a table, which can't be a list or a mapping: JSON then."""
    return value if is_scalar(value) else as_text(value)


def is_structured(value: object) -> bool:
    """Return whether a value is a list or a mapping."""
    return isinstance(value, list | tuple | dict)


def copied(value: Any) -> Any:
    """Return a value that its user may change; tuples become lists."""
    if isinstance(value, list | tuple):
        return [copied(item) for item in value]
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether `value` is a finite number and no truth value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST <= value <= LARGEST  # math.isfinite raises for an integer beyond it


def refusal(value: object) -> str:
    """Return why something is no value, and what to write instead."""
    return f"is {value!r}; give a finite number, text, bool or null, or a list of them"


def is_scalar(value: object) -> TypeGuard[float | int | str | bool | None]:
    """Return whether `value` is a value, and neither a list nor a mapping."""
    return value is None or isinstance(value, str | bool) or is_number(value)


def is_value(value: object, depth: int = MAX_DEPTH) -> TypeGuard[Value]:
    """Return whether a parameter can have `value`: no NaN, no infinity, no other objects in it."""
    if isinstance(value, list | tuple):
        return depth > 0 and all(is_value(item, depth - 1) for item in value)
    if isinstance(value, dict):
        items = value.items()
        return depth > 0 and all(isinstance(k, str) and is_value(v, depth - 1) for k, v in items)
    return is_scalar(value)
