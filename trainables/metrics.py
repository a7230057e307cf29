"""Checks of reported metrics: names and numbers that every tracker accepts."""

import math
import numbers
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

MOST_METRICS = 1_000  # MLflow's limit for one batch
LONGEST_NAME = 250  # MLflow's limit for a metric's name
NAME = re.compile(r"[\w\-. /:]+")  # MLflow's alphabet

Fail = Callable[[str], Exception]


def checked(
    metrics: object, wanted: Sequence[str], fail: Fail, lack: Fail | None = None
) -> dict[str, float]:
    """Return reported metrics as plain numbers.

    Args:
        wanted: names that must be present.
        fail: makes the error for a message.
        lack: makes the error for a missing name of `wanted`; None: `fail` does.
    """
    if not isinstance(metrics, Mapping):
        raise fail(f"metrics is {type(metrics).__name__}; give a dict of name: number")
    if len(metrics) > MOST_METRICS:
        raise fail(f"{len(metrics)} metrics; report at most {MOST_METRICS} a step")
    for name in metrics:
        if problem := _name_problem(name):
            raise fail(f"metric name {name!r} {problem}")
    for name in wanted:
        if name not in metrics:
            nearest = get_close_matches(name, metrics, n=1, cutoff=0.0)
            hint = f"; the nearest reported is {nearest[0]!r}" if nearest else ""
            raise (lack or fail)(f"the sweep's metric {name!r} is missing{hint}")
    return {name: _number(name, value, fail) for name, value in metrics.items()}


def _number(name: str, value: object, fail: Fail) -> float:
    number = value
    item = getattr(value, "item", None)
    if callable(item):
        try:
            number = item()  # a numpy or torch scalar
        except (TypeError, ValueError, RuntimeError) as error:
            raise fail(f"metric {name!r} holds several numbers; give one") from error
    if isinstance(number, bool) or not isinstance(number, numbers.Real):
        raise fail(f"metric {name!r} is {number!r} ({type(number).__name__}); give a real number")
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf  # type: ignore[operator]  # a Real compares


def _name_problem(name: object) -> str:
    """Return the reason why MLflow would refuse a metric's name; empty if it accepts the name."""
    if not isinstance(name, str):
        return f"is of type {type(name).__name__}; give text"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters; use at most {LONGEST_NAME}"
    if not NAME.fullmatch(name):
        return "may hold letters, digits, spaces and _ - . / : only"
    if posixpath.normpath(name) != name or name.startswith(("/", "..")) or name == ".":
        return f"is read as a path; write {posixpath.normpath(name).strip('./') or 'metric'!r}"
    return ""
