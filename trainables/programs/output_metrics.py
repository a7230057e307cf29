"""Reports from a program's output: a pattern finds names and numbers in its lines.

The named groups of a pattern are metrics; or its groups `name` and `value` give one metric for each
match. A group `step` gives the step. Metrics are collected until all of the sweep's metrics and all
metrics with a limit are among them: that line makes the report. If a metric with a limit is
missing, the report is made when the next step begins or the output ends; so it is if the sweep's
metrics are missing and the step is printed. A line ends at a newline or a carriage return
(progress bars). Colours and other codes for a terminal are taken out before the search.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from trainables.errors import CODES
from trainables.metrics import NoNumber

LONGEST_SHOWN = 60  # characters of a value in a message
LONGEST = 2**16  # bytes of a line to search: a pattern could take for ever on more
HALF = LONGEST // 2
PAIR = {"name", "value"}
STEP = "step"

T = TypeVar("T", int, float)


class UnreadableMetric(ValueError):
    """The pattern matched a text that is no number, for a step or a metric of the sweep."""


@dataclass
class Collector:
    """Read output in pieces, and call `report(step, metrics)`; step is None if not printed."""

    pattern: re.Pattern[str]
    metrics: tuple[str, ...]  # of the sweep; without all of them only a printed step is reported
    report: Callable[[int | None, dict[str, float | NoNumber]], None]
    limited: tuple[str, ...] = ()  # metrics to wait for while the step may still print them
    seen_ns: int = 0  # when the last metric of the report was found
    names: set[str] = field(default_factory=set)  # of the metrics found so far
    _rest: bytes = b""
    _found: dict[str, float | NoNumber] = field(default_factory=dict)
    _step: int | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next piece of output; b"" marks the end.

        Raises:
            UnreadableMetric: a step, or a metric of the sweep, is no number.
        """
        lines = re.split(rb"[\r\n]", self._rest + chunk)
        self._rest = _ends(lines.pop()) if chunk else b""
        for line in lines:
            self._read(CODES.sub("", _ends(line).decode("utf-8", "replace")))
        if not chunk and self._is_whole():
            self._report()

    def _read(self, line: str) -> None:
        step: int | None = None
        metrics: dict[str, float | NoNumber] = {}
        for match in self.pattern.finditer(line):
            for name, text in _pairs(match):
                if name == STEP:
                    step = _read_as(int, line, name, text)
                elif name in self.metrics:
                    metrics[name] = _read_as(float, line, name, text)
                else:
                    metrics[name] = _read_side_metric(text)
        if step is None and not metrics:
            return
        if self._is_whole() and self._is_new_step(step, metrics):
            self._report()
        self._step = self._step if step is None else step
        self._found |= metrics
        self.names |= metrics.keys()
        self.seen_ns = time.time_ns()
        if self._has((*self.metrics, *self.limited)):
            self._report()

    def _has(self, names: tuple[str, ...]) -> bool:
        return bool(self._found) and self._found.keys() >= {*names}

    def _is_whole(self) -> bool:
        """Return whether what was collected is a report once its step is over."""
        return self._has(self.metrics) or (bool(self._found) and self._step is not None)

    def _is_new_step(self, step: int | None, found: dict[str, float | NoNumber]) -> bool:
        """Return whether a line belongs to another step than the metrics collected so far."""
        another = None not in (step, self._step) and step != self._step
        return another or (self._has(self.metrics) and not found.keys().isdisjoint(self.metrics))

    def _report(self) -> None:
        step, metrics = self._step, self._found
        self._step, self._found = None, {}
        self.report(step, metrics)


def _ends(line: bytes) -> bytes:
    """Return a line, or the beginning and the end of a long one, cut where words end."""
    if len(line) <= LONGEST:
        return line
    return line[:HALF].rpartition(b" ")[0] + b" ... " + line[-HALF:].partition(b" ")[2]


def _pairs(match: re.Match[str]) -> Iterator[tuple[str, str]]:
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    if groups.keys() >= PAIR:
        yield groups.pop("name"), groups.pop("value")
    yield from groups.items()


def _read_side_metric(text: str) -> float | NoNumber:
    try:
        return float(text)
    except ValueError:
        return NoNumber(repr(text[:LONGEST_SHOWN]))


def _read_as(kind: type[T], line: str, name: str, text: str) -> T:
    try:
        return kind(text)
    except ValueError as error:
        wanted = "whole numbers" if kind is int else "numbers"
        raise UnreadableMetric(
            f"collect.stdout found {text!r} for {name} in the line {line.strip()[:200]!r}; "
            f"it must match {wanted} only"
        ) from error
