"""Curves in a terminal: dots of braille, two by four in a character."""

import math
from collections.abc import Sequence

from hposvc.text import number
from hposvc.views.formatting import evenly_spaced, share_of_span, sparkline

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of braille, by column and row
BLANK = 0x2800
Point = tuple[float, float]


def plot(points: Sequence[Point], width: int, height: int, marks: Sequence[int] = ()) -> list[str]:
    """Draw a curve with its axes, in lines of at most `width` characters.

    Args:
        points: step and value, by step; a value that is not finite leaves a gap.
        height: lines, that of the steps included.
        marks: steps to be marked on the axis, as those of rungs.
    """
    finite = [(step, value) for step, value in points if math.isfinite(value)]
    if not finite:
        return []
    low, high = min(value for _, value in finite), max(value for _, value in finite)
    labels = [number(high), number(low)]
    gutter = max(map(len, labels))
    columns, rows = max(2, width - gutter - 2), max(1, height - 2)
    first, last = points[0][0], max([points[-1][0], *marks])
    grid = _dots(points, columns, rows, (first, last), (low, high))
    lines = []
    for row, dots in enumerate(grid):
        label = labels[0] if row == 0 else labels[1] if row == rows - 1 else ""
        text = "".join(chr(BLANK + dot) for dot in dots)
        lines.append(f"{label:>{gutter}} ┤{text}".rstrip(chr(BLANK)))
    axis, steps = _axis(columns, first, last, [int(first), *marks, int(last)])
    return [*lines, f"{'':>{gutter}} └{axis}", f"{'':>{gutter}}  {steps}".rstrip()]


def _dots(
    points: Sequence[Point], columns: int, rows: int, steps: Point, values: Point
) -> list[list[int]]:
    """Return the dots of a curve, by row and column; consecutive points are joined."""
    grid = [[0] * columns for _ in range(rows)]
    before: tuple[int, int] | None = None
    for step, value in points:
        if not math.isfinite(value):
            before = None
            continue
        x = round(share_of_span(step, *steps) * (2 * columns - 1))
        y = round((1 - share_of_span(value, *values)) * (4 * rows - 1))
        for dot in _joined(before or (x, y), (x, y)):
            grid[dot[1] // 4][dot[0] // 2] |= DOTS[dot[0] % 2][dot[1] % 4]
        before = (x, y)
    return grid


def _joined(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots of a straight line."""
    (x, y), (to_x, to_y) = start, end
    most = max(abs(to_x - x), abs(to_y - y), 1)
    return [
        (round(x + (to_x - x) * part / most), round(y + (to_y - y) * part / most))
        for part in range(most + 1)
    ]


def _axis(columns: int, first: float, last: float, marks: Sequence[int]) -> tuple[str, str]:
    """Return the line of the axis, and that of the steps below it, as many as have room."""
    axis, labels = ["─"] * columns, [" "] * columns
    written = -1
    for mark in dict.fromkeys(marks):
        place = round(share_of_span(mark, first, last) * (columns - 1))
        axis[place] = "┴"
        text = f"{mark}"
        begin = min(place, columns - len(text))
        if begin > written and begin >= 0:
            labels[begin : begin + len(text)] = text
            written = begin + len(text)
    return "".join(axis), "".join(labels)


def trend(values: Sequence[float], width: int) -> str:
    """Draw values as a sparkline of at most `width` characters."""
    return sparkline([values[place] for place in evenly_spaced(len(values), width)])
