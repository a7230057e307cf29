"""Events as a server describes them."""

import json
import math
from collections.abc import Mapping
from typing import Any

from hposvc.events import Event, from_json

MEASURED = ("metrics", "trials", "note")  # what of an event may hold numbers that JSON has not
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def event_from_data(kind: str, time_s: float, data: Mapping[str, Any]) -> Event:
    """Return the event that a server describes.

    Raises:
        UnknownEvent: a later version wrote the journal.
    """
    return from_json(kind, time_s, json.dumps(_with_numbers(data)))


def _with_numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event's data with numbers for the words that JSON has in their place.

    Parameters stay as they are: they are finite, and `NaN` may be one of their words.
    """
    return {
        key: value if key == "params" else _number_or_self(value) if key in MEASURED else value
        for key, value in data.items()
    }


def _number_or_self(value: Any) -> Any:
    match value:
        case str():
            return WORDS.get(value, value)
        case list():
            return [_number_or_self(item) for item in value]
        case dict():
            return {
                key: item if key == "params" else _number_or_self(item)
                for key, item in value.items()
            }
        case _:
            return value
