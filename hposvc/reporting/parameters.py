"""Parameters as the axes of charts: linear, logarithmic or categorical."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hposvc.reporting.svg import Categories, Linear, LogScale, Scale
from hposvc.state.trial import TrialState
from hposvc.text import value_text
from searchers import Choice, Domain, Value


@dataclass(frozen=True)
class Axis:
    """An axis in pixels, which has a place for each value of a parameter."""

    scale: Scale
    place: Callable[[Any], float]  # of a value, in pixels


def describe(name: str, domain: Domain) -> dict[str, Any]:
    """Return a searched parameter as JSON."""
    if isinstance(domain, Choice):
        values = [*domain.values]
        return {"name": name, "scale": "category", "low": None, "high": None, "categories": values}
    scale = "log" if getattr(domain, "log", False) else "linear"
    low, high = getattr(domain, "low", 0.0), getattr(domain, "high", 1.0)
    return {"name": name, "scale": scale, "low": low, "high": high, "categories": []}


def axis(parameter: Mapping[str, Any], start: float, end: float, count: int = 5) -> Axis:
    """Return the axis of a parameter that `describe` returned."""
    if parameter["scale"] == "category":
        names = [value_text(value) for value in parameter["categories"]]
        index = {json.dumps(value): place for place, value in enumerate(parameter["categories"])}
        bands = Categories(names, start, end)
        return Axis(bands, lambda value: bands(index[json.dumps(value)]))
    low, high = float(parameter["low"]), float(parameter["high"])
    scale = LogScale(low, high, start, end) if parameter["scale"] == "log" else None
    numbers = scale or Linear(low, high, start, end, count)
    return Axis(numbers, lambda value: numbers(float(value)))


def rounded(value: Value) -> str:
    """Return a value for a sentence: two digits of a number are enough there."""
    return value_text(value, digits=2)


def value_of(trial: TrialState, place: int) -> float | None:
    """Return a trial's value of one of the metrics; None: it has none."""
    return trial.values[place] if len(trial.values) > place else None
