"""Reported metrics: what counts as a number, and what is left out of a report.

Names stay as given; a tracker that refuses one maps it (hposvc/tracking/mlflow_names.py).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from reprlib import Repr
from typing import NamedTuple

from trainables.errors import encodable

MOST_METRICS = 1_000  # MLflow's limit for one batch
MOST_SHOWN = 5  # metrics in a message
MOST_TEXT = 500  # characters of a value that is no number
SHORT = Repr()  # how a value that is no number is shown
SHORT.maxstring = SHORT.maxother = 60

Fail = Callable[[str], Exception]


@dataclass(frozen=True)
class NoNumber:
    """A reported value that is no number."""

    found: str  # the value and its type, for people


class CheckedMetrics(NamedTuple):
    """The numbers of a report, and what it had beside them."""

    values: dict[str, float]
    left_out: dict[str, str]  # what each value is that is no number, by the metric's name


def checked(metrics: object, wanted: Sequence[str], fail: Fail) -> CheckedMetrics:
    """Return reported metrics as plain numbers, without the values that are no numbers.

    Args:
        wanted: names that must be numbers where they are given.
        fail: makes the error for a message.
    """
    if not isinstance(metrics, Mapping):
        raise fail(f"metrics is {type(metrics).__name__}; give a dict of name: number")
    given = {encodable(f"{name}"): value for name, value in metrics.items()}
    values: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name in dict.fromkeys([*filter(given.__contains__, wanted), *given]):
        number = number_of(given[name])
        if isinstance(number, NoNumber):
            if name in wanted:
                what = f"metric {name!r} is {number.found}"
                raise fail(f"{what}; give a real number, or leave it out of this report")
            left_out[name] = number.found
        elif len(values) < MOST_METRICS:
            values[name] = number
        else:
            left_out[name] = f"one of {len(given):,}; a step has at most {MOST_METRICS:,}"
    return CheckedMetrics({name: values[name] for name in given if name in values}, left_out)


def number_of(value: object) -> float | NoNumber:
    """Return a value as a plain number: of Python, numpy, torch or any type that has a float.

    Text and bool are no numbers. NaN and infinity are; numbers beyond floats are infinite.
    """
    if isinstance(value, NoNumber):
        return value
    number = value
    item = getattr(value, "item", None)
    if callable(item):
        try:
            number = item()  # a scalar of numpy or torch
        except (TypeError, ValueError, RuntimeError):
            return NoNumber(f"several numbers ({type(value).__name__})")
    if not isinstance(number, bool) and hasattr(number, "__float__"):
        try:
            return float(number)
        except OverflowError:
            return math.inf if number > 0 else -math.inf  # type: ignore[operator]  # a Real compares
        except (TypeError, ValueError, RuntimeError):
            pass
    text = SHORT.repr(number)
    text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}..."
    return NoNumber(encodable(f"{text} ({type(number).__name__})"))


def describe_left_out(left_out: Mapping[str, str]) -> str:
    """Return what a report's values were that are no numbers, as text."""
    shown = [f"{name} is {kind}" for name, kind in islice(left_out.items(), MOST_SHOWN)]
    more = len(left_out) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])])
