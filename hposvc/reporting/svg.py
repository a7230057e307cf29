"""Drawing tools of all charts: scales with round ticks, axes, marks and text, as SVG.

Colours are variables of CSS, so that one picture serves dark and light pages; each has its light
value behind it, which `flat` puts in its place for programs that know no variables. Lengths are in
pixels of the picture's view box, from its upper left corner.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Protocol
from xml.sax.saxutils import escape, quoteattr

from hposvc.analysis.judgement import spans_decades
from hposvc.text import number

INK = "var(--ink,#1b2430)"
MUTED = "var(--muted,#5b6675)"
GRID = "var(--grid,#e3e7ec)"
PAPER = "var(--paper,#ffffff)"
FAINT = "var(--faint,#aab4c0)"  # what many trials are drawn in
BEST = "var(--best,#d55e00)"  # the best trial, and nothing else
ON_BEST = "var(--on-best,#1b2430)"  # text on it, dark on light and dark pages
# Colours that people who are colour-blind can tell apart. Source: Okabe & Ito, Color Universal
# Design (2008).
SERIES = (
    "var(--c1,#0072b2)",
    "var(--c2,#009e73)",
    "var(--c3,#cc79a7)",
    "var(--c4,#b8860b)",
    "var(--c5,#3a9fd8)",
    "var(--c6,#7a5195)",
    "var(--c7,#6b7785)",
)
GOOD, BAD = "var(--good,#009e73)", "var(--bad,#b3261e)"
FONT = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"
SIZE = 12.0  # of text
LETTER = 0.56  # mean width of a letter, as a share of the text's size
WIDTH, HEIGHT = 920.0, 360.0  # as wide as a page's card is; charts of one panel are as high
TICKS = 6
VARIABLE = re.compile(r"var\(--[\w-]+,([^)]+)\)")
Anchor = Literal["start", "middle", "end"]
Mark = Literal["box", "line", "dot", "ring", "cross"]


def flat(svg: str) -> str:
    """Return a picture with the light colours in place of the variables."""
    return VARIABLE.sub(r"\1", svg)


def text_width(text: str, size: float = SIZE) -> float:
    """Return about how wide a text is."""
    return len(text) * size * LETTER


def fitted(text: str, width: float, size: float = SIZE) -> str:
    """Return a text that is about as wide as `width` at most, cut with an ellipsis."""
    letters = max(1, int(width / (size * LETTER)))
    return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"


@dataclass(frozen=True)
class Tick:
    """A place on an axis that has a label."""

    at: float  # pixels
    label: str


class Scale(Protocol):
    """Maps values to pixels along an axis."""

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        ...

    @property
    def ticks(self) -> list[Tick]: ...


@dataclass(frozen=True)
class Linear:
    """A linear scale."""

    low: float
    high: float
    start: float  # pixels at `low`
    end: float  # pixels at `high`
    count: int = TICKS
    label: Callable[[float], str] = number

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, count: int = TICKS
    ) -> "Linear":
        """Return a scale from a round number below all finite values to one above them."""
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        size = max(abs(low), abs(high))
        if high - low <= 1e-9 * size:
            margin = size * 0.1 or 1.0
            low, high = low - margin, high + margin
        step = round_step((high - low) / count)
        # Sums of such steps may miss the end by a rounding error.
        low = math.floor(low / step + 1e-9) * step
        high = math.ceil(high / step - 1e-9) * step
        return cls(low, high, start, end, count)

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[Tick]:
        if self.high == self.low:
            return [Tick(self(self.low), self.label(self.low))]
        step = round_step((self.high - self.low) / self.count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [float(f"{place * step:.12g}") for place in range(first, last + 1)]
        return [Tick(self(value), self.label(value)) for value in values]


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale between two positive numbers."""

    low: float
    high: float
    start: float
    end: float
    marked: Sequence[float] = ()  # values with a tick; empty: round ones

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float) -> "LogScale":
        """Return a scale that holds all positive finite values."""
        finite = [value for value in values if math.isfinite(value) and value > 0] or [0.1, 1.0]
        low, high = min(finite), max(finite)
        if high < low * 1.000001:  # their logarithms can be equal, though they are not
            low, high = low / 2, high * 2
        return cls(low, high, start, end)

    def __call__(self, value: float) -> float:
        length = math.log(self.high) - math.log(self.low)
        value = max(value, self.low * 1e-3)  # far beyond the picture
        share = (math.log(value) - math.log(self.low)) / length
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[Tick]:
        if self.marked:
            return [Tick(self(value), number(value)) for value in sorted(self.marked)]
        low, high = math.log10(self.low), math.log10(self.high)
        decades = range(math.floor(low), math.ceil(high) + 1)
        every = max(1, math.ceil(len(decades) / TICKS))
        digits = (1, 2, 5) if high - low < 2 else (1,)
        values = [digit * 10.0**power for power in decades[::every] for digit in digits]
        inside = [value for value in values if self.low <= value * 1.000001 <= self.high * 1.00001]
        inside = inside if len(inside) > 1 else [self.low, self.high]
        return [Tick(self(value), number(value)) for value in inside]


@dataclass(frozen=True)
class Categories:
    """A scale of names, each with a band of its own."""

    names: Sequence[str]
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the middle of the n-th band, counted from 0."""
        share = (value + 0.5) / max(1, len(self.names))
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[Tick]:
        return [Tick(self(place), name) for place, name in enumerate(self.names)]


def robust(
    values: Iterable[float | None], start: float, end: float, goal: str
) -> Linear | LogScale:
    """Return a scale for values of a metric on which a few bad values do not hide the others.

    The good end is always on the scale; the bad end may lie beyond it. Losses over more than one
    and a half decades get a logarithmic scale.
    """
    finite = sorted(value for value in values if value is not None and math.isfinite(value))
    if not finite:
        return Linear.around([], start, end)
    low, high = finite[0], finite[-1]
    q10, q90 = (finite[round(share * (len(finite) - 1))] for share in (0.1, 0.9))
    if goal == "minimize" and spans_decades(finite):
        return LogScale(low / 1.2, min(high, q90 * 5) * 1.2, start, end)
    spread = 1.5 * (q90 - q10)
    if goal == "minimize" and spread:
        high = max(value for value in finite if value <= q90 + spread)
    elif spread:
        low = min(value for value in finite if value >= q10 - spread)
    return Linear.around([low, high], start, end)


def whole(values: Iterable[float | None], start: float, end: float, goal: str) -> Linear | LogScale:
    """Return a scale on which all values of a metric lie, whatever its goal."""
    return Linear.around([value for value in values if value is not None], start, end)


ScaleOf = Callable[[Iterable[float | None], float, float, str], Linear | LogScale]


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit for an axis of so many seconds: its length in seconds, and its name."""
    for limit, size, unit in ((180, 1, "seconds"), (10800, 60, "minutes"), (259200, 3600, "hours")):
        if seconds < limit:
            return size, unit
    return 86400, "days"


def round_step(rough: float) -> float:
    """Return the least of 1, 2, 2.5 and 5 times a power of ten that is not below a step."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= rough * 0.999999)


@dataclass(frozen=True)
class Frame:
    """The rectangle inside a chart's axes."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass
class Picture:
    """An SVG document that grows by marks; later marks lie above earlier ones."""

    title: str
    description: str  # what the picture shows, for people who do not see it
    width: float = WIDTH
    height: float = HEIGHT
    parts: list[str] = field(default_factory=list)

    def frame(
        self, left: float = 58, top: float = 36, right: float = 18, bottom: float = 44
    ) -> Frame:
        """Return the rectangle that these margins leave."""
        return Frame(left, top, self.width - right, self.height - bottom)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        width: float = 1.5,
        opacity: float = 1.0,
        dashes: str = "",
        hover: str = "",
    ) -> None:
        """Draw a line through points."""
        if points:
            style = f' stroke-dasharray="{dashes}"' if dashes else ""
            faint = f' stroke-opacity="{opacity:g}"' if opacity < 1 else ""
            self._add(
                f'<path d="{path(points)}" fill="none" stroke="{colour}" '
                f'stroke-width="{width:g}" stroke-linejoin="round"{style}{faint}',
                "path",
                hover,
            )

    def area(self, points: Sequence[tuple[float, float]], colour: str, opacity: float) -> None:
        """Fill the polygon between points."""
        if points:
            self._add(
                f'<path d="{path(points)}Z" fill="{colour}" fill-opacity="{opacity:g}"', "path"
            )

    def dot(
        self,
        x: float,
        y: float,
        colour: str,
        radius: float = 3.0,
        hover: str = "",
        hollow: bool = False,
    ) -> None:
        """Draw a dot; a hollow one is a ring."""
        fill = f'fill="{PAPER}" stroke="{colour}" stroke-width="1.4"'
        fill = fill if hollow else f'fill="{colour}"'
        self._add(
            f'<circle cx="{_short(x)}" cy="{_short(y)}" r="{radius:g}" {fill}', "circle", hover
        )

    def box(
        self,
        left: float,
        top: float,
        width: float,
        height: float,
        colour: str,
        opacity: float = 1.0,
        corner: float = 0.0,
        hover: str = "",
    ) -> None:
        """Fill a rectangle."""
        faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
        rounded = f' rx="{corner:g}"' if corner else ""
        self._add(
            f'<rect x="{_short(left)}" y="{_short(top)}" width="{_short(max(width, 0))}" '
            f'height="{_short(max(height, 0))}" fill="{colour}"{rounded}{faint}',
            "rect",
            hover,
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        colour: str = INK,
        anchor: Anchor = "start",
        size: float = SIZE,
        bold: bool = False,
        hover: str = "",
    ) -> None:
        """Write a text at its base line."""
        where = f'x="{_short(x)}" y="{_short(y)}"'
        more = f"<title>{escape(hover)}</title>" if hover else ""
        heavy = ' font-weight="600"' if bold else ""
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        small = f' font-size="{size:g}"' if size != SIZE else ""
        self.parts.append(
            f'<text {where} fill="{colour}"{side}{small}{heavy}>{escape(text)}{more}</text>'
        )

    def x_axis(self, frame: Frame, scale: Scale, title: str = "", grid: bool = False) -> None:
        """Draw the axis below a frame, with its title."""
        right = -math.inf
        for tick in scale.ticks:
            if grid:
                self.line([(tick.at, frame.top), (tick.at, frame.bottom)], GRID, 1)
            half = text_width(tick.label, 11) / 2
            if tick.at - half > right + 6:  # labels do not touch
                self.text(tick.at, frame.bottom + 16, tick.label, MUTED, "middle", 11)
                right = tick.at + half
        self.line([(frame.left, frame.bottom), (frame.right, frame.bottom)], FAINT, 1)
        if title:
            middle = (frame.left + frame.right) / 2
            self.text(middle, frame.bottom + 34, title, MUTED, "middle")

    def y_axis(self, frame: Frame, scale: Scale, title: str = "") -> None:
        """Draw the axis to the left of a frame, with lines across it; its title stands above."""
        for tick in scale.ticks:
            self.line([(frame.left, tick.at), (frame.right, tick.at)], GRID, 1)
            label = fitted(tick.label, frame.left - 10, 11)
            self.text(frame.left - 8, tick.at + 4, label, MUTED, "end", 11)
        if title:
            self.text(2, frame.top - 18, fitted(title, self.width / 2), INK)

    def legend(self, frame: Frame, entries: Sequence[tuple[str, str, Mark]]) -> None:
        """Write names with their marks and colours above the upper right corner of a frame.

        Names that find no place in a line stand in one above it.
        """
        x, y = frame.right, frame.top - 18
        for name, colour, mark in reversed(entries):
            x -= text_width(name, 11)
            if x < 16:
                x, y = frame.right - text_width(name, 11), y - 16
            self.text(x, y, name, MUTED, size=11)
            self.mark(x - 10, y - 4, colour, mark)
            x -= 30

    def mark(self, x: float, y: float, colour: str, mark: Mark) -> None:
        """Draw the mark of a legend around a point."""
        match mark:
            case "box":
                self.box(x - 4.5, y - 4.5, 9, 9, colour, corner=2)
            case "line":
                self.line([(x - 6, y), (x + 6, y)], colour, 2.5)
            case "dot":
                self.dot(x, y, colour)
            case "ring":
                self.dot(x, y, colour, hollow=True)
            case "cross":
                self.cross(x, y, colour)

    def cross(self, x: float, y: float, colour: str, hover: str = "") -> None:
        """Draw a cross."""
        self._add(
            f'<path d="M{_short(x - 3)} {_short(y - 3)}l6 6m0-6l-6 6" fill="none" '
            f'stroke="{colour}" stroke-width="1.6"',
            "path",
            hover,
        )

    def dots(self, places: Iterable[tuple[float, float]], colour: str, size: float = 3) -> None:
        """Draw many dots as one element; dots that hide each other are drawn once."""
        half = size / 2
        cells = sorted({(round(x / half) * half, round(y / half) * half) for x, y in places})
        if cells:
            drawn = "".join(f"M{_short(x)} {_short(y)}h0" for x, y in cells)
            self._add(
                f'<path d="{drawn}" fill="none" stroke="{colour}" stroke-width="{size:g}" '
                'stroke-linecap="round" stroke-opacity="0.6"',
                "path",
            )

    @contextmanager
    def mark_of(self, trial: str, words: str) -> Iterator[None]:
        """Make what is drawn the mark of a trial, which says these words when pointed at."""
        self.parts.append(f"<g data-trial={quoteattr(trial)}><title>{escape(words)}</title>")
        yield
        self.parts.append("</g>")

    @contextmanager
    def clipped(self, frame: Frame) -> Iterator[None]:
        """Hide what is drawn beyond a frame, but for the half of a mark."""
        left, top = frame.left - 5, frame.top - 5
        width, height = frame.right - left + 5, frame.bottom - top + 5
        box = f"{_short(left)} {_short(top)} {_short(width)} {_short(height)}"
        self.parts.append(
            f'<svg x="{_short(left)}" y="{_short(top)}" width="{_short(width)}" '
            f'height="{_short(height)}" viewBox="{box}">'
        )
        yield
        self.parts.append("</svg>")

    def note(self, text: str) -> None:
        """Write what the picture leaves out below it."""
        self.text(2, self.height - 4, fitted(text, self.width - 4, 11), MUTED, size=11)

    def svg(self) -> str:
        """Return the document."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f"aria-label={quoteattr(f'{self.title}. {self.description}')} "
            f'viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'height="{self.height:g}" font-family="{FONT}" font-size="{SIZE:g}">'
            f"{''.join(self.parts)}</svg>"
        )

    def _add(self, opened: str, name: str, hover: str = "") -> None:
        end = f"><title>{escape(hover)}</title></{name}>" if hover else "/>"
        self.parts.append(opened + end)


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path's data; a tenth of a pixel is exact enough, and shorter."""
    return "M" + "L".join(f"{_short(x)} {_short(y)}" for x, y in points)


def stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the corners of a line that keeps each point's height until the next point."""
    corners = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        corners += [(x, before), (x, y)]
    return corners


def _short(length: float) -> str:
    return f"{length:.1f}".removesuffix(".0")
