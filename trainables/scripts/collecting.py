"""Reports from what a program prints: a pattern finds names and numbers in its lines.

A pattern's named groups are metrics; or its groups `name` and `value` give one each time that it
matches. A group `step` says the step. What is found adds up until the sweep's metric is among it:
that line makes the report. A line ends at a newline or a carriage return (progress bars).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

LONGEST = 2**16  # bytes of a line that are looked at: no pattern is let loose on more
PAIR = {"name", "value"}
STEP = "step"

T = TypeVar("T", int, float)


class NoNumber(ValueError):
    """The pattern found a text where a number must be."""


@dataclass
class Collector:
    """Reads output in pieces, and calls `report(step, metrics)`; step None: not said."""

    pattern: re.Pattern[str]
    metrics: tuple[str, ...]  # of the sweep; when all are found, they make a report
    report: Callable[[int | None, dict[str, float]], None]
    _rest: bytes = b""
    _found: dict[str, float] = field(default_factory=dict)
    _step: int | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of output; b"" is its end.

        Raises:
            NoNumber: a group matched something else.
        """
        lines = re.split(rb"[\r\n]", self._rest + chunk)
        self._rest = lines.pop()[:LONGEST] if chunk else b""
        for line in lines:
            self._read(line[:LONGEST].decode("utf-8", "replace"))

    def _read(self, line: str) -> None:
        for match in self.pattern.finditer(line):
            for name, text in _pairs(match):
                if name == STEP:
                    self._step = _read_as(int, line, name, text)
                else:
                    self._found[name] = _read_as(float, line, name, text)
        if self._found and self._found.keys() >= {*self.metrics}:
            step, metrics = self._step, self._found
            self._step, self._found = None, {}
            self.report(step, metrics)


def _pairs(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    if groups.keys() >= PAIR:
        yield groups.pop("name"), groups.pop("value")
    yield from groups.items()


def _read_as(kind: type[T], line: str, name: str, text: str) -> T:
    try:
        return kind(text)
    except ValueError as error:
        wanted = "whole numbers" if kind is int else "numbers"
        raise NoNumber(
            f"collect.stdout found {text!r} for {name} in the line {line.strip()[:200]!r}; "
            f"it must match {wanted} only"
        ) from error
