"""Reports from what a program prints: a pattern finds names and numbers in its lines.

A pattern's named groups are metrics; or its groups `name` and `value` give one each time that it
matches. A group `step` says the step. What is found adds up until the sweep's metrics, and those
with a limit, are all among it: that line makes the report. Without one with a limit, the report is
made when the next step begins or the output ends. A line ends at a newline or a carriage return
(progress bars).
"""

import re
import time
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
    metrics: tuple[str, ...]  # of the sweep; no report without all of them
    report: Callable[[int | None, dict[str, float]], None]
    limited: tuple[str, ...] = ()  # waited for as long as the step may still print them
    seen_ns: int = 0  # when the last of what is reported was found
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
        if not chunk and self._has(self.metrics):
            self._report()

    def _read(self, line: str) -> None:
        step, found = None, {}
        for match in self.pattern.finditer(line):
            for name, text in _pairs(match):
                if name == STEP:
                    step = _read_as(int, line, name, text)
                else:
                    found[name] = _read_as(float, line, name, text)
        if step is None and not found:
            return
        if self._has(self.metrics) and self._begins_anew(step, found):
            self._report()
        self._step = self._step if step is None else step
        self._found |= found
        self.seen_ns = time.time_ns()
        if self._has((*self.metrics, *self.limited)):
            self._report()

    def _has(self, names: tuple[str, ...]) -> bool:
        return bool(self._found) and self._found.keys() >= {*names}

    def _begins_anew(self, step: int | None, found: dict[str, float]) -> bool:
        """Whether a line is of another step than what was found before it."""
        another = None not in (step, self._step) and step != self._step
        return another or not found.keys().isdisjoint(self.metrics)

    def _report(self) -> None:
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
