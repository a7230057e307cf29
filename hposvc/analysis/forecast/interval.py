"""A forecast number with its interval."""

from dataclasses import dataclass

SHARE = 0.8  # of the truth that an interval is to hold


@dataclass(frozen=True)
class ForecastInterval:
    """A forecast number: its expected value, and the ends of its 80 % interval."""

    expected: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies within the interval; what people see is rounded, too."""
        slack = 1e-6 * max(abs(self.low), abs(self.high))
        return self.low - slack <= value <= self.high + slack

    def times(self, factor: float) -> "ForecastInterval":
        """Return the interval in another unit."""
        return ForecastInterval(self.expected * factor, self.low * factor, self.high * factor)
