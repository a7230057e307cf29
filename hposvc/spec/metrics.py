"""The keys `metric`, `metrics` and `limits`: objectives of a sweep, and bounds on results."""

import math
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import PlainValidator, WithJsonSchema

from hposvc.errors import SHOWN, Problem, SpecError, fail, shown
from hposvc.spec.types import CLOSED, Extendable, Word
from searchers import nearest

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

ENERGY = "energy_kwh"  # the metric that each report has where the energy is measured
MAX_METRICS = 4  # metrics; with 4, 28 of 100 trials are on the front by chance alone
NUMBER_PATTERN = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
LIMIT_PATTERN = re.compile(rf"\s*(\S(?:.*\S)?)\s*(<=|>=)\s*({NUMBER_PATTERN})\s*", re.ASCII)

# A bound before the name, as in `1 <= loss <= 3`, whose name is `1 <= loss` by LIMIT_PATTERN.
BOUND_BEFORE_PATTERN = re.compile(rf"({NUMBER_PATTERN})\s*([<>])=?\s*(.+)", re.ASCII)

SMALLEST_PER_ONE = 2**1074  # one over the smallest float: every float is a whole number of these
SELECT_PATTERN = re.compile(r"last|best|mean_[1-9][0-9]{0,5}", re.ASCII)


@dataclass(frozen=True)
class Metric:
    """A metric that is optimised. Values keep the reported sign, except those of `loss`."""

    name: Word
    goal: Literal["minimize", "maximize"]
    select: str = "last"  # a trial's value: last, best, or mean_K (the mean of the last K)
    # A value as good as this ends the sweep; None: no target.
    target: Extendable[float | None] = None
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if not SELECT_PATTERN.fullmatch(self.select):
            message = "choose last, best, or mean_5 for the mean of the last 5"
            raise fail(f"is {shown(self.select)}", "select", fix=message)

    def loss(self, value: float) -> float:
        """Return the value, signed so that lower is better."""
        return -value if self.goal == "maximize" else value

    def value(self, curve: Sequence[tuple[int, float]]) -> float | None:
        """Return the selected value of (step, value) points in order of steps; None: no points.

        `best` skips NaN; `last` and `mean_K` return NaN if it is among their points.
        """
        values = [value for _, value in curve]
        if not values:
            return None
        if self.select == "last":
            return values[-1]
        if self.select == "best":
            return min(values, key=lambda value: (math.isnan(value), self.loss(value)))
        return mean(values[-int(self.select.removeprefix("mean_")) :])

    def losses(self, curve: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
        """Return (step, selected loss so far) at each step; skip values that are not finite."""
        selected = SelectedValue(self)
        for step, value in curve:
            selected.add(step, value)
        return tuple(selected.losses)

    def reached(self, value: float) -> bool:
        """Return whether the value is as good as the target; False without a target."""
        return self.target is not None and self.loss(value) <= self.loss(self.target)


@dataclass
class SelectedValue:
    """The selected value of a trial so far, updated in constant time by each report.

    Values that are not finite are skipped.
    """

    metric: Metric
    value: float | None = None  # None before the first finite value
    losses: list[tuple[int, float]] = field(default_factory=list)  # (step, selected loss so far)
    _window: deque[float] = field(default_factory=deque)  # of mean_K: the last K values
    _sum: int = 0  # of the window, in units of the smallest float: exact, unlike a sum of floats

    def add(self, step: int, value: float) -> None:
        """Add the value of a step; steps increase."""
        if not math.isfinite(value):
            return
        metric, select = self.metric, self.metric.select
        if select == "last" or self.value is None:
            self.value = value
        elif select == "best":
            self.value = min(self.value, value, key=metric.loss)
        if select.startswith("mean_"):
            self.value = self._add_to_mean(value, int(select.removeprefix("mean_")))
        self.losses.append((step, metric.loss(self.value)))

    def _add_to_mean(self, value: float, width: int) -> float:
        """Add a value, and return the mean of the last `width`, rounded like statistics.mean."""
        self._window.append(value)
        self._sum += _in_smallest(value)
        if len(self._window) > width:
            self._sum -= _in_smallest(self._window.popleft())
        # Division of integers: the sum may overflow a float although the mean does not.
        return self._sum / (SMALLEST_PER_ONE * len(self._window))


def _in_smallest(value: float) -> int:
    """Return a finite float in units of the smallest float."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (SMALLEST_PER_ONE // denominator)


@dataclass(frozen=True)
class Limit:
    """A bound on a trial's last value of a metric; a trial that breaks it does not count."""

    metric: str
    sense: Literal["<=", ">="]
    bound: float

    def excess(self, metrics: Mapping[str, float]) -> float:
        """Return how far the limit is exceeded, in the metric's unit; 0 or less: it is kept.

        Infinite if the metric is not reported, or is NaN.
        """
        value = metrics.get(self.metric, math.nan)
        if math.isnan(value):
            return math.inf
        return value - self.bound if self.sense == "<=" else self.bound - value

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.bound:g}"


def read_limit(text: str) -> Limit:
    """Return the limit in a text like `latency_ms <= 20`.

    Raises:
        ValueError: the text is not a limit.
    """
    match = LIMIT_PATTERN.fullmatch(text)
    if match is None or not math.isfinite(float(match[3])):
        message = "write NAME <= NUMBER or NAME >= NUMBER, like 'latency_ms <= 20'"
        raise ValueError(f"is {shown(text)}; {message}")
    return Limit(match[1], match[2], float(match[3]))  # type: ignore[arg-type] # the pattern has <= and >= only


def check_limits(value: object) -> tuple[str, ...]:
    """Return the texts of limits, if none is there twice and all can hold together."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"is {shown(value)}; give a list, like ['latency_ms <= 20']")
    earlier: dict[tuple[str, str], Limit] = {}
    problems = []
    for index, text in enumerate(value):
        try:
            limit = read_limit(text if isinstance(text, str) else "")
        except ValueError:
            message = "write NAME <= NUMBER or NAME >= NUMBER, like 'latency_ms <= 20'"
            problems.append(Problem((index,), f"is {shown(text)}", message))
            continue
        problem = _clash_with_earlier(limit, earlier)
        if problem:
            problems.append(Problem((index,), problem))
        earlier.setdefault((limit.metric, limit.sense), limit)
    if problems:
        raise SpecError(problems)
    return tuple(value)


def _clash_with_earlier(limit: Limit, earlier: Mapping[tuple[str, str], Limit]) -> str | None:
    """Return how a limit clashes with the earlier ones, as text; None: it does not."""
    same = earlier.get((limit.metric, limit.sense))
    if same is not None:
        return f"is a second limit beside '{same}'; keep the stricter one"
    opposite = earlier.get((limit.metric, ">=" if limit.sense == "<=" else "<="))
    if opposite is None:
        return None
    low, high = sorted((limit, opposite), key=lambda side: side.sense, reverse=True)
    if low.bound > high.bound:
        return f"can never hold beside '{opposite}'; one of the two bounds is wrong"
    return None


Limits = Annotated[
    tuple[str, ...],
    PlainValidator(check_limits),
    WithJsonSchema({"type": "array", "items": {"type": "string", "pattern": "<=|>="}}),
]


def limit_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that each limit has one bound, and is on a reported metric, where these are known."""
    unknown, reported = 0, spec.reported or ()
    for index, limit in enumerate(spec.bounds):
        if bounds := _several_bounds(limit):
            yield Problem(("limits", index), bounds)
        elif reported and limit.metric not in reported:
            unknown += 1
            # Looking for the nearest name is slow, and problems beyond SHOWN are not displayed.
            fix = nearest(limit.metric, reported) if unknown <= SHOWN else ""
            yield Problem(("limits", index), f"is on {shown(limit.metric)}: no such metric", fix)


def _several_bounds(limit: Limit) -> str | None:
    """Return that a limit has several bounds, and what to write, as text; None: it has one."""
    before = BOUND_BEFORE_PATTERN.fullmatch(limit.metric)
    if before is not None:
        bound, sense, name = before.groups()
        first = f"{name} {'>=' if sense == '<' else '<='} {bound}"
        second = Limit(name, limit.sense, limit.bound)
        mend = f"write two limits: '{first}' and '{second}'"
        return f"is {shown(str(limit))}, which has two bounds; {mend}"
    if "<=" in limit.metric or ">=" in limit.metric:
        return f"is {shown(str(limit))}, which has several bounds; write a limit for each"
    return None


def metric_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that there is one metric, or several that make a front."""
    metrics = spec.metrics
    if spec.metric is not None:
        if metrics:
            fix = "remove one of them"
            yield Problem(("metrics",), "is given, and metric too", fix, at_key=True)
        return
    if not metrics:
        remedy = "give a mapping of name, goal, select, target"
        fix = f"{remedy}, or a list of such as metrics"
        yield Problem(("metric",), "is missing", fix, at_key=True)
        return
    if len(metrics) == 1:
        yield Problem(("metrics",), "has one", "write it as metric, or give 2 to 4")
    if len(metrics) > MAX_METRICS:
        yield Problem(("metrics",), f"has {len(metrics):,}", f"give 2 to {MAX_METRICS}")
        return
    if spec.scheduler.options.get("plateau"):
        message = f"watches one metric, and there are {len(metrics)}"
        yield Problem(("scheduler", "plateau"), message, "remove it", at_key=True)
    yield from _single_metric_problems(metrics)


def _single_metric_problems(metrics: Sequence[Metric]) -> Iterator[Problem]:
    for index, metric in enumerate(metrics):
        before = [other.name for other in islice(metrics, index)]
        if metric.name in before:
            message = f"is {shown(metric.name)}, as in metrics[{before.index(metric.name)}]"
            yield Problem(("metrics", index, "name"), message, "give each metric once")
        if metric.select == "best":
            message = "is best, which is another step for each of several metrics"
            yield Problem(("metrics", index, "select"), message, "choose last or mean_5")
