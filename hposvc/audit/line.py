"""A line of an audit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Line:
    """Something that happened, and why."""

    time: float  # seconds since the epoch, or of the simulated clock
    step: int | None  # that the trial had come to; None: a line of the whole sweep
    what: str  # a word: proposed, ordered, stopped, failed, ended, …
    why: str  # for people
    detail: Mapping[str, Any] = field(default_factory=dict)  # the same facts, for programs

    def data(self) -> dict[str, Any]:
        """As JSON has it; what is no finite number is null."""
        return {name: _finite(value) for name, value in vars(self).items()}


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value
