"""The lines of an audit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hposvc.text import finite


@dataclass(frozen=True)
class Line:
    """A line of an audit: an event, and its reason."""

    time: float  # seconds since the epoch, or of the simulated clock
    step: int | None  # the trial's step at the time; None: the line is about the whole sweep
    what: str  # the event in a word: proposed, ordered, stopped, failed, ended, …
    why: str  # the reason, for people
    detail: Mapping[str, Any] = field(default_factory=dict)  # the same facts, for programs

    def data(self) -> dict[str, Any]:
        """Return the line for JSON; numbers that are not finite become null."""
        line: dict[str, Any] = finite(vars(self))
        return line
