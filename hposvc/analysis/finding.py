"""A finding about a sweep: a sentence for people, with the figures behind it."""

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
