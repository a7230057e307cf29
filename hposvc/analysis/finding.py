"""A finding about a sweep: a sentence for people, with the figures behind it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["good", "info", "warning", "bad"]


@dataclass(frozen=True)
class Finding:
    """Something that a person should know of a sweep."""

    topic: str  # best, sure, gain, ...; or warning
    level: Level
    title: str
    sentence: str
    data: Mapping[str, Any] = field(default_factory=dict)  # JSON; null: not known


def finite(data: Any) -> Any:
    """Return JSON data with null in place of NaN and infinity, which JSON does not have."""
    match data:
        case float():
            return data if math.isfinite(data) else None
        case Mapping():
            return {name: finite(value) for name, value in data.items()}
        case list() | tuple():
            return [finite(value) for value in data]
    return data
