"""When a sweep ends before its last trial, and what is left for its best."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field

from hposvc.reading.problems import fail, shown
from hposvc.spec.kinds import CLOSED, Positive, Seconds


def read_share(value: object) -> float:
    """A share in (0, 1], from a number or a text like `10%`."""
    found = value
    if isinstance(value, str) and value.endswith("%"):
        try:
            found = float(value.removesuffix("%")) / 100
        except ValueError:
            found = None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found <= 1:
        raise ValueError(f"is {shown(value)}; give a share like 10% or 0.1, above 0 and up to all")
    return float(found)


Share = Annotated[float, BeforeValidator(read_share)]
Hours = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class Budget:
    """What a sweep may use up; then it starts nothing new, and stops what runs."""

    wall: Annotated[Seconds, Field(gt=0)] | None = None  # None: no limit
    gpu_hours: Hours | None = None  # that its orders hold GPUs, over all of them; None: no limit
    cpu_hours: Hours | None = None  # the same of CPU cores
    reserve: Share | None = None  # of each limit, kept for the finalists; None: nothing
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.reserve is not None and not self.limited:
            message = "is kept of a budget; give wall, gpu_hours or cpu_hours too"
            raise fail(message, "reserve", at_key=True)
        if self.reserve == 1:
            raise fail("is all of the budget; leave some for the search", "reserve")

    @property
    def wall_s(self) -> float | None:
        """Seconds of the drivers' time; None: no limit."""
        return self.wall

    @property
    def limited(self) -> bool:
        """Whether there is a limit at all."""
        return any(one is not None for one in (self.wall, self.gpu_hours, self.cpu_hours))


@dataclass(frozen=True)
class NoGain:
    """No new trials once so many have ended since the best one was beaten by more than `delta`."""

    trials: Positive
    delta: Annotated[float, Field(ge=0)] = 0.0  # in the metric's unit
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class MaxFailed:
    """The sweep is broken once this share of the trials that ended have failed."""

    share: Share = 0.5
    after: Positive = 5  # trials that must have ended before anything is said
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Stop:
    """What ends a sweep that leads nowhere."""

    plateau: NoGain | None = None  # None: it goes on
    max_failed: MaxFailed | None = None  # None: it goes on
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Finalists:
    """The best trials are trained again, from nothing and to the end, with several seeds each."""

    top: Positive = 3  # trials
    seeds: Annotated[int, Field(ge=2)] = 5  # trainings of each
    __pydantic_config__ = CLOSED
