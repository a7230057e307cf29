"""Rules that end a sweep before its last trial, and the trials that are trained again.

These are the finalists at its end, and the baseline at its beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from hposvc.errors import fail, shown
from hposvc.spec.registry import REFERENCES, is_reference
from hposvc.spec.types import CLOSED, Extendable, Hours, ParameterValue, Positive, Seconds
from searchers import AtMost


def read_fraction(value: object) -> float:
    """Return a share in (0, 1], from a number or a text like `10%`."""
    share = value
    if isinstance(value, str) and value.endswith("%"):
        try:
            share = float(value.removesuffix("%")) / 100
        except ValueError:
            share = None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"is {shown(value)}; give a share like 10% or 0.1, above 0 and up to all")
    return float(share)


_NUMBER = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
_PERCENTAGE = {"type": "string", "pattern": "^[0-9.]+ ?%$"}
Fraction = Annotated[
    float, BeforeValidator(read_fraction), WithJsonSchema({"anyOf": [_NUMBER, _PERCENTAGE]})
]
SEEDS = AtMost(1000)
Seeds = Annotated[int, Field(ge=2), SEEDS]


def check_rule(text: str) -> str:
    """Return a well-formed name of a rule; whether it exists shows at its import."""
    if not is_reference(text):
        raise ValueError(f"is {shown(text)}; write {REFERENCES}")
    return text


Rule = Annotated[str, AfterValidator(check_rule)]


@dataclass(frozen=True)
class Budget:
    """The limits on what a sweep may use; at a limit, running trials stop and no new ones start.

    None: there is no such limit.
    """

    wall: Extendable[Annotated[Seconds, Field(gt=0)] | None] = None
    gpu_hours: Extendable[Hours | None] = None  # GPUs times hours that orders hold them
    cpu_hours: Extendable[Hours | None] = None  # CPU cores times hours
    energy_kwh: Extendable[Hours | None] = None  # as far as it is measured
    # By `price`, in its currency.
    cost: Extendable[Annotated[float, Field(gt=0), AtMost(1e12)] | None] = None
    reserve: Fraction | None = None  # share of each limit kept for the finalists; None: nothing
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.reserve is not None and not self.limited:
            fix = "give wall, gpu_hours, cpu_hours, energy_kwh or cost too"
            raise fail("is kept of a budget", "reserve", fix=fix, at_key=True)
        if self.reserve == 1:
            raise fail("is all of the budget", "reserve", fix="leave some for the search")

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        limits = (self.wall, self.gpu_hours, self.cpu_hours, self.energy_kwh, self.cost)
        return any(limit is not None for limit in limits)


@dataclass(frozen=True)
class PlateauRule:
    """A plateau: no new trials once so many have ended since the best improved by over `delta`."""

    trials: Positive
    delta: Annotated[float, Field(ge=0)] = 0.0  # in the metric's unit
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Worth:
    """The least gain expected of more trials: no new ones once they promise less.

    `gain` must be expected for `gpu_hours`, `cpu_hours`, `energy_kwh` or `trials`, of which one is
    given.
    """

    gain: Annotated[float, Field(gt=0)]  # in the metric's unit
    gpu_hours: Hours | None = None  # GPUs times hours; None: another unit
    cpu_hours: Hours | None = None  # CPU cores times hours; None: another unit
    energy_kwh: Hours | None = None  # as far as it is measured; None: another unit
    trials: Positive | None = None  # None: another unit
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        units = ("gpu_hours", "cpu_hours", "energy_kwh", "trials")
        given = [unit for unit in units if getattr(self, unit) is not None]
        if not given:
            fix = "say for how much: gpu_hours, cpu_hours, energy_kwh or trials"
            raise fail("is a gain for nothing", "gain", fix=fix, at_key=True)
        if len(given) > 1:
            raise fail(f"is a second amount beside {given[0]}", given[1], fix="give one")


@dataclass(frozen=True)
class MaxFailed:
    """A limit on failed trials: the sweep stops as broken at this share of the ended trials."""

    share: Fraction = 0.5
    after: Positive = 5  # trials that must have ended before the share counts
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Stop:
    """The rules that end a sweep early."""

    plateau: Extendable[PlateauRule | None] = None  # None: never
    worth: Extendable[Worth | None] = None  # None: never
    max_failed: Extendable[MaxFailed | None] = None  # None: never
    # The user's own: hposvc/driver/user_stop_rules.py asks them.
    rules: Extendable[tuple[Rule, ...]] = ()
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        for number, rule in enumerate(self.rules):
            if rule in self.rules[:number]:
                raise fail(f"names {rule} twice", "rules", number, fix="remove one")


@dataclass(frozen=True)
class Finalists:
    """The best trials to train again, from nothing and to the end, with several seeds each."""

    top: Annotated[int, Field(ge=1), SEEDS] = 3  # trials
    seeds: Seeds = 5  # trainings of each
    # Values that differ from the trial's, by name, such as a larger width; empty: none does.
    set: Mapping[str, ParameterValue] = field(default_factory=dict)
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Baseline:
    """The configuration that measures the noise of the metric: the sweep's first trial.

    Beside the search it is trained to the end with several other seeds.
    """

    seeds: Seeds = 5  # trainings beside the trial itself
    params: Mapping[str, ParameterValue] | None = None  # None: the first of `initial`
    __pydantic_config__ = CLOSED
