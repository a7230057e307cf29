"""How things are written: numbers, durations and sizes for people, and data as JSON.

JSON has no NaN and no infinity: `finite` puts null in their place, and `spelled` their names.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

NONE = "–"  # where there is no value
SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
EXPONENT = re.compile(r"e(?:\+|(-))0*")


def number(value: float | None, digits: int = 5) -> str:
    """Return a number with significant digits: `0.98612`, `1e-5`, `∞`; `–` for None."""
    if value is None:
        return NONE
    text = EXPONENT.sub(r"e\1", f"{value:.{digits}g}")
    return text.replace("inf", "∞")


def value_text(value: object, digits: int = 5) -> str:
    """Return a parameter's value: `0.98612`, `64`, `adamw`, `true`, `null`; lists as JSON.

    Args:
        digits: significant digits of a float.
    """
    match value:
        case float():
            return number(value, digits)
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)


def listed(names: Collection[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    shown = ", ".join([*names][:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def duration(seconds: float | None) -> str:
    """Return a time span: `2.5s`, `42s`, `3m 12s`, `2h 05m`, `3d 04h`, `3d`; `–` for None."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{number(max(0.0, seconds), digits=2)}s"
    for (unit, size), (smaller_unit, smaller) in pairwise(SECONDS.items()):
        count, rest_s = divmod(int(seconds), size)
        if count:
            rest = rest_s // smaller
            return f"{count}{unit} {rest:02}{smaller_unit}" if rest else f"{count}{unit}"
    return f"{int(seconds)}s"


def format_bytes(count: float) -> str:
    """Return a number of bytes: `512 B`, `3.4 MiB`, `20 GiB`."""
    amount, unit = float(count), "B"
    for larger_unit in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger_unit
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}"


def format_size(count: float) -> str:
    """Return a number of bytes as text, in units of 10^9, 10^6 or 10^3."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B" if count else "0"


def finite(data: Any, digits: int | None = None) -> Any:
    """Return data for JSON, answers as mappings, with null for numbers that are not finite.

    Args:
        digits: significant digits that are kept of a float; None: all.
    """

    def kept(value: float) -> float | None:
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")

    return _with_floats(kept, data)


def spelled(data: Any) -> Any:
    """Return data for JSON, with `NaN`, `Infinity` or `-Infinity` for numbers that are not finite.

    Nothing is lost: events with measured values are sent so.
    """
    return _with_floats(_spelled, data)


def _spelled(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _with_floats(change: Callable[[float], object], data: Any) -> Any:
    match data:
        case float():
            return change(data)
        case Mapping():
            return {key: _with_floats(change, value) for key, value in data.items()}
        case list() | tuple():
            return [_with_floats(change, value) for value in data]
    if is_dataclass(data):
        return {each.name: _with_floats(change, getattr(data, each.name)) for each in fields(data)}
    return data
