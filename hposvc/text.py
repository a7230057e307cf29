"""How things are written: numbers, durations, sizes and costs for people, and data as JSON.

JSON has no NaN and no infinity: `finite` puts null in their place, and `spelled` their names.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import PurePath
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


def numbers(*values: float) -> list[str]:
    """Return numbers with so many digits, three at least, that different ones can be told apart."""
    largest, spread = max(map(abs, values)), max(values) - min(values)
    apart = math.ceil(math.log10(largest / spread)) + 1 if spread > 0 else 0
    whole = math.floor(math.log10(largest)) + 1 if largest >= 1 else 0
    return [number(value, min(max(apart, whole, 3), 8)) for value in values]


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


def likely_percent(value: float) -> str:
    """Return a share or probability as a percentage, never a certainty."""
    if value > 0.99:
        return "more than 99 %"
    if value < 0.01:
        return "less than 1 %"
    return percent(value)


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.0f} %"


def count(many: int, noun: str) -> str:
    """Return `1 trial`, or `1,200 trials`."""
    return f"{many:,} {noun}{'' if many == 1 else 's'}"


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


def energy(kwh: float) -> str:
    """Return energy for people: `1.2 kWh`, `34 Wh`."""
    return f"{number(kwh, 3)} kWh" if kwh >= 0.1 else f"{number(1e3 * kwh, 3)} Wh"


def cost_of(rank_s: float, gpus: float) -> str:
    """Return rank-seconds as GPU-hours, or without GPUs as worker-hours."""
    return cost_text(*_cost(rank_s, gpus))


def cost_range_of(low_rank_s: float, high_rank_s: float, rank_s: float, gpus: float) -> str:
    """Return a range of rank-seconds in the unit in which `cost_of` returns `rank_s`."""
    ends = _cost(low_rank_s, gpus)[0], *_cost(high_rank_s, gpus)
    return cost_range(*ends, _cost(rank_s, gpus)[0])


def _cost(rank_s: float, gpus: float) -> tuple[float, str]:
    return rank_s / 3600 * (gpus or 1), "GPU-hours" if gpus else "worker-hours"


def cost_text(cost: float, unit: str) -> str:
    """Return a cost for people: 1,200 GPU-hours, 3.14 GPU-hours, 42 GPU-seconds."""
    factor, shown_unit = _scale(cost, unit)
    digits = _digits(cost, factor)
    return f"{digits} {shown_unit.removesuffix('s') if digits == '1' else shown_unit}"


def cost_range(low: float, high: float, unit: str, cost: float) -> str:
    """Return a range in the unit that `cost` is shown in: 3.8 to 5.2 GPU-minutes.

    Empty: both ends read alike.
    """
    factor, shown_unit = _scale(cost, unit)
    start, end = _digits(low, factor), _digits(high, factor)
    return "" if start == end else f"{start} to {end} {shown_unit}"


def _scale(cost: float, unit: str) -> tuple[int, str]:
    """Return how many of a smaller unit are an hour, and that unit."""
    whose = unit.removesuffix("-hours")
    if not 0 < cost < 0.1:
        return 1, unit
    return (60, f"{whose}-minutes") if cost * 60 >= 1 else (3600, f"{whose}-seconds")


def _digits(cost: float, factor: int) -> str:
    shown = cost * factor
    return amount(cost) if factor == 1 else f"{shown:.2g}" if shown < 99.5 else f"{shown:,.0f}"


def amount(cost: float) -> str:
    """Return a number of hours for people: 1,200, or 3.14."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"


def doc(words: str, *examples: str) -> Any:
    """Return the description of a key of an answer, or of an argument, for `Annotated`."""
    from pydantic import Field  # which the command line need not load to print its help

    return Field(description=words, examples=[*examples] or None)


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
    if isinstance(data, PurePath):
        return f"{data}"
    if is_dataclass(data):
        return {each.name: _with_floats(change, getattr(data, each.name)) for each in fields(data)}
    return data
