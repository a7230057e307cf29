"""Numeric parameters, and the place of each of their values in the unit interval.

A continuous range is affine in the value, or in its logarithm. Each value of a stepped range owns a
cell of the interval and lies at the cell's centre, so that a uniform point falls on a value with
the share of its cell: 1/count on a linear scale, the cell's width in the logarithm otherwise.

`from_unit` rounds a float to 12 significant digits (on a linear scale, of the range's larger
bound): the result is readable, and `from_unit(to_unit(value)) == value` is exact in spite of
rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from numpy.random import Generator

from searchers.distributions import Normal, Truncated
from searchers.values import LARGEST, Condition, SpaceError, Value, is_number

DIGITS = 12
MAX_INT = 10**12  # beyond this, cells of a log scale are narrower than a float resolves
MIN_RELATIVE_STEP = 1e-10  # of the larger bound; with less, neighbours would round to one value
ROUNDING = 1e-9  # of a step: 0.3 - 0.1 is less than 0.2
MAX_STEPS = 100_000  # of a float; with more, every method may treat the range as continuous
SHRINK, GROW = 0.8, 1.2  # Jaderberg et al., Population Based Training of Neural Networks (2017)
MAX_EXPONENT = 700.0  # `exp` of more than 709 leaves the floats
MIN_MOVE = 0.001  # of a linear range, so that a multiplicative move can leave 0


@dataclass(frozen=True)
class _Cells:
    """The indices 0 .. count - 1 of low, low + step, ..., one cell of the unit interval each."""

    low: float
    step: float
    count: int
    log: bool

    def centre(self, index: int) -> float:
        if not self.log:
            return (index + 0.5) / self.count
        return (self._left_edge(index) + self._left_edge(index + 1)) / 2

    def at(self, unit: float) -> int:
        """Return the index of the cell that holds `unit`."""
        if not self.log:
            return min(int(unit * self.count), self.count - 1)
        floor, width = self._log_range
        return self.nearest(math.exp(floor + unit * width))

    def nearest(self, value: float) -> int:
        place = (value - self.low) / self.step + 0.5  # infinite, if a move left the floats
        return math.floor(max(0.0, min(place, self.count - 0.5)))

    def moved(self, value: float, grows: bool) -> int:
        """Return the index at GROW or SHRINK times the value, at least one away."""
        start = self.nearest(value)
        target = self.nearest(value + (GROW - 1 if grows else SHRINK - 1) * abs(value))
        if target == start:
            target = start + (1 if grows else -1)
        return max(0, min(target, self.count - 1))

    def truncated(self, normal: Normal) -> Truncated:
        """Return a normal distribution over the cells."""
        if self.log:
            floor, width = self._log_range
            return Truncated((math.log(normal.mean) - floor) / width, normal.deviation / width)
        width = self.count * self.step
        mean = (normal.mean - self.low + self.step / 2) / width
        return Truncated(mean, normal.deviation / width)

    def _left_edge(self, index: int) -> float:
        if index == 0:
            return 0.0
        floor, width = self._log_range
        return (math.log(self.low + (index - 0.5) * self.step) - floor) / width

    @cached_property
    def _log_range(self) -> tuple[float, float]:
        # low - step / 2 has no logarithm where low is less than half a step.
        floor = math.log(max(self.low - self.step / 2, self.low / 2) or self.low)
        return floor, math.log(min(self.low + (self.count - 0.5) * self.step, LARGEST)) - floor


def _check_range(low: float, high: float, log: bool) -> None:
    for key, bound in (("min", low), ("max", high)):
        if not is_number(bound):
            raise SpaceError((key,), f"is {bound!r}; give a finite number")
    if low > high:
        raise SpaceError((), f"min is {low}, max is {high}; swap them")
    if low == high:
        raise SpaceError((), f"min and max are both {low}; for a constant give the number alone")
    if not math.isfinite(high - low):
        raise SpaceError((), f"{low} to {high} is too wide for a float; narrow it")
    if log and low <= 0:
        raise SpaceError(("min",), f"is {low}, but a log scale has no 0; give a positive number")


def _check_normal(normal: Normal | None, low: float, high: float, log: bool) -> None:
    if normal is None:
        return
    width = math.log(high) - math.log(low) if log else high - low
    try:
        normal.check(low, high, width)
    except SpaceError as error:
        raise error.under("normal") from None


@dataclass(frozen=True)
class Float:
    """A real number between `low` and `high`, ends included; with `step` one of low + i * step."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    when: Condition = field(default_factory=dict, hash=False)
    normal: Normal | None = None  # None: values are drawn alike, on the range's scale

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.log)
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))
        _check_normal(self.normal, self.low, self.high, self.log)
        span = self.high - self.low
        if self.step is None:
            if span < MIN_RELATIVE_STEP * self._scale:
                message = f"{self.low} to {self.high} is too narrow for {DIGITS} digits"
                raise SpaceError((), f"{message}; search the difference from {self.low} instead")
            return
        if not is_number(self.step) or not 0 < self.step <= span * (1 + ROUNDING):
            raise SpaceError(
                ("step",), f"is {self.step!r}; give a positive number within the range"
            )
        if self.step < max(MIN_RELATIVE_STEP * self._scale, span / MAX_STEPS):
            raise SpaceError(("step",), f"{self.step} is too fine for this range; leave it out")
        object.__setattr__(self, "step", float(self.step))

    @cached_property
    def distribution(self) -> Truncated | None:
        """How values are drawn, in the unit interval; None: all alike."""
        if self.normal is None:
            return None
        if self._cells:
            return self._cells.truncated(self.normal)
        if self.log:
            mean, width = self._log_ratio(self.normal.mean), self._log_width
        else:
            mean, width = self.normal.mean - self.low, self.high - self.low
        return Truncated(mean / width, self.normal.deviation / width)

    @property
    def count(self) -> int | None:
        """The number of values; None: infinitely many."""
        return self._cells.count if self._cells else None

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with `value`; None: nothing."""
        if not is_number(value):
            return f"is {value!r}; give a number"
        if not self.low <= value <= self.high:
            return f"is {value}, outside {self.low} to {self.high}"
        if self._cells and abs(value - self._snap(value)) > MIN_RELATIVE_STEP * self._scale:
            return f"is {value}, off the step of {self.step}; the nearest is {self._snap(value)}"
        return None

    def cast(self, value: Value) -> float:
        """Return a valid value as a float: 2 becomes 2.0."""
        return float(value)  # type: ignore[arg-type]

    def to_unit(self, value: Value) -> float:
        number = float(value)  # type: ignore[arg-type]  # validated at the border
        if self._cells:
            return self._cells.centre(self._cells.nearest(number))
        if self.log:
            unit = self._log_ratio(number) / self._log_width
        else:
            unit = (number - self.low) / (self.high - self.low)
        return max(0.0, min(unit, 1.0))

    def from_unit(self, unit: float) -> float:
        unit = max(0.0, min(float(unit), 1.0))
        if self._cells:
            return self._value_at(self._cells.at(unit))
        if self.log:
            exponent = unit * self._log_width
            if exponent < MAX_EXPONENT:
                return self._snap(self.low * math.exp(exponent))
            return self._snap(math.exp(min(math.log(self.low) + exponent, math.log(LARGEST))))
        return self._snap(self.low + unit * (self.high - self.low))

    def moved(self, value: Value, rng: Generator) -> float:
        """Make PBT's move: 0.8 or 1.2 times the value, at least a step, within the range."""
        number = float(value)  # type: ignore[arg-type]
        grows = rng.random() < 0.5
        if self._cells:
            return self._value_at(self._cells.moved(number, grows))
        size = abs(number) * (GROW - 1 if grows else 1 - SHRINK)
        if not self.log:
            size = max(size, MIN_MOVE * (self.high - self.low))
        return self._snap(number + size if grows else number - size)

    def grid(self, resolution: int) -> Sequence[float]:
        """Return all values, or `resolution` points of a continuous range, ends included."""
        if self._cells:
            return [self._value_at(index) for index in range(self._cells.count)]
        if resolution == 1:
            return [self.from_unit(0.5)]
        return [self.from_unit(i / (resolution - 1)) for i in range(resolution)]

    @property
    def _scale(self) -> float:
        return max(abs(self.low), abs(self.high))

    @cached_property
    def _cells(self) -> _Cells | None:
        if self.step is None:
            return None
        count = math.floor((self.high - self.low) / self.step + ROUNDING) + 1
        return _Cells(self.low, self.step, count, self.log)

    @cached_property
    def _log_width(self) -> float:
        return self._log_ratio(self.high)

    def _log_ratio(self, number: float) -> float:
        """Return the logarithm of a number divided by the lower end."""
        ratio = number / self.low
        if math.isfinite(ratio):
            return math.log(ratio)
        return math.log(number) - math.log(self.low)

    @cached_property
    def _decimals(self) -> int:
        return DIGITS - math.ceil(math.log10(self._scale))

    def _value_at(self, index: int) -> float:
        return self._clip(self._rounded(self.low + index * (self.step or 0.0)))

    def _snap(self, number: float) -> float:
        """Return the value of the range nearest to `number`."""
        if self._cells:
            return self._value_at(self._cells.nearest(number))
        clipped = self._clip(number)  # clip before rounding too: a bound may have more digits
        if self.log:
            return self._clip(float(f"{clipped:.{DIGITS}g}"))
        return self._clip(self._rounded(clipped))

    def _rounded(self, number: float) -> float:
        # `round` raises where rounding leaves the floats; the bound that follows it is in them.
        return number if abs(number) > LARGEST / 2 else round(number, self._decimals)

    def _clip(self, number: float) -> float:
        return max(self.low, min(number, self.high))


@dataclass(frozen=True)
class Int:
    """A whole number between `low` and `high`, ends included, on low + i * step."""

    low: int
    high: int
    log: bool = False
    step: int = 1
    when: Condition = field(default_factory=dict, hash=False)
    normal: Normal | None = None  # None: values are drawn alike, on the range's scale

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.log)
        for key, number in (("min", self.low), ("max", self.high), ("step", self.step)):
            if not is_number(number) or number != int(number):
                raise SpaceError((key,), f"is {number!r}; give a whole number, or type: float")
            if abs(number) > MAX_INT:
                raise SpaceError((key,), f"{number} is too large for an int; add type: float")
        if not 1 <= self.step <= self.high - self.low:
            raise SpaceError(("step",), f"is {self.step}; give 1 to {self.high - self.low}")
        for name in ("low", "high", "step"):
            object.__setattr__(self, name, int(getattr(self, name)))
        _check_normal(self.normal, self.low, self.high, self.log)

    @cached_property
    def distribution(self) -> Truncated | None:
        """How values are drawn, in the unit interval; None: all alike."""
        return None if self.normal is None else self._cells.truncated(self.normal)

    @property
    def count(self) -> int:
        """The number of values."""
        return self._cells.count

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with `value`; None: nothing."""
        if not is_number(value) or value != int(value):
            return f"is {value!r}; give a whole number"
        if not self.low <= value <= self.high:
            return f"is {value}, outside {self.low} to {self.high}"
        if (int(value) - self.low) % self.step:
            nearest = self._value_at(self._cells.nearest(value))
            return f"is {value}, off the step of {self.step}; the nearest is {nearest}"
        return None

    def cast(self, value: Value) -> int:
        """Return a valid value as an int: 2.0 becomes 2."""
        return int(value)  # type: ignore[arg-type]

    def to_unit(self, value: Value) -> float:
        return self._cells.centre(self._cells.nearest(int(value)))  # type: ignore[arg-type]

    def from_unit(self, unit: float) -> int:
        return self._value_at(self._cells.at(max(0.0, min(float(unit), 1.0))))

    def moved(self, value: Value, rng: Generator) -> int:
        """Make PBT's move: 0.8 or 1.2 times the value, at least a step, within the range."""
        return self._value_at(self._cells.moved(int(value), rng.random() < 0.5))  # type: ignore[arg-type]

    def grid(self, resolution: int) -> Sequence[int]:
        """Return all values, whatever the resolution."""
        return range(self.low, self.high + 1, self.step)

    @cached_property
    def _cells(self) -> _Cells:
        count = (self.high - self.low) // self.step + 1
        return _Cells(float(self.low), float(self.step), count, self.log)

    def _value_at(self, index: int) -> int:
        return self.low + index * self.step
