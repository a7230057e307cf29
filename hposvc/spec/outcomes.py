"""The keys `metric`, `metrics` and `limits`: what a trial's results are to be, and must be."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from pydantic import PlainValidator

from hposvc.reading.problems import Problem, SpecError, no_such, shown
from hposvc.spec.sections import Metric

MOST = 4  # metrics; with as many, 28 of 100 trials are on the front by chance alone
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
LIMIT = re.compile(rf"\s*(\S(?:.*\S)?)\s*(<=|>=)\s*({NUMBER})\s*", re.ASCII)


@dataclass(frozen=True)
class Limit:
    """A bound that a trial's last value of a metric must keep for the trial to count."""

    metric: str
    sense: Literal["<=", ">="]
    bound: float

    def excess(self, metrics: Mapping[str, float]) -> float:
        """By how much the limit is exceeded, in the metric's unit; up to 0: it is kept.

        Infinite where the metric is not reported, or is not a number.
        """
        value = metrics.get(self.metric, math.nan)
        if math.isnan(value):
            return math.inf
        return value - self.bound if self.sense == "<=" else self.bound - value

    def __str__(self) -> str:
        return f"{self.metric} {self.sense} {self.bound:g}"


def read_limit(text: str) -> Limit:
    """The limit that a text like `latency_ms <= 20` sets.

    Raises:
        ValueError: it sets none.
    """
    match = LIMIT.fullmatch(text)
    if match is None or not math.isfinite(float(match[3])):
        message = "write NAME <= NUMBER or NAME >= NUMBER, like 'latency_ms <= 20'"
        raise ValueError(f"is {shown(text)}; {message}")
    return Limit(match[1], match[2], float(match[3]))  # type: ignore[arg-type] # the pattern's two


def check_limits(value: object) -> tuple[str, ...]:
    """Texts, each of which sets a limit, none of them twice, and which can hold together."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"is {shown(value)}; give a list, like ['latency_ms <= 20']")
    found: dict[tuple[str, str], Limit] = {}
    problems = []
    for place, text in enumerate(value):
        try:
            limit = read_limit(text if isinstance(text, str) else "")
        except ValueError:
            message = "write NAME <= NUMBER or NAME >= NUMBER, like 'latency_ms <= 20'"
            problems.append(Problem((place,), f"is {shown(text)}; {message}"))
            continue
        problem = _clash(limit, found)
        if problem:
            problems.append(Problem((place,), problem))
        found.setdefault((limit.metric, limit.sense), limit)
    if problems:
        raise SpecError(problems)
    return tuple(value)


def _clash(limit: Limit, found: Mapping[tuple[str, str], Limit]) -> str | None:
    """What stands against a limit among those before it."""
    same = found.get((limit.metric, limit.sense))
    if same is not None:
        return f"is a second limit beside '{same}'; keep the stricter one"
    other = found.get((limit.metric, ">=" if limit.sense == "<=" else "<="))
    if other is None:
        return None
    low, high = sorted((limit, other), key=lambda one: one.sense, reverse=True)
    if low.bound > high.bound:
        return f"can never hold beside '{other}'; one of the two bounds is wrong"
    return None


Limits = Annotated[tuple[str, ...], PlainValidator(check_limits)]


def of_limits(limits: Sequence[Limit], known: Collection[str]) -> Iterator[Problem]:
    """Limits are on metrics that trials report; empty: nobody knows before they do."""
    for place, limit in enumerate(limits):
        if known and limit.metric not in known:
            message = f"is on {shown(limit.metric)}: {no_such('metric', limit.metric, known)}"
            yield Problem(("limits", place), message)


def of_metrics(
    metric: Metric | None, metrics: Sequence[Metric], scheduler: Mapping[str, object]
) -> Iterator[Problem]:
    """There is one metric, or several that make a front.

    Args:
        scheduler: its options.
    """
    if metric is not None:
        if metrics:
            message = "is given, and metric too; remove one of them"
            yield Problem(("metrics",), message, at_key=True)
        return
    if not metrics:
        wanted = "give a mapping of name, goal, select, target"
        message = f"is missing; {wanted}, or a list of such as metrics"
        yield Problem(("metric",), message, at_key=True)
        return
    if len(metrics) == 1:
        yield Problem(("metrics",), "has one; write it as metric, or give 2 to 4")
    if len(metrics) > MOST:
        yield Problem(("metrics",), f"has {len(metrics)}; give 2 to {MOST}")
    if scheduler.get("plateau"):
        message = f"watches one metric, and there are {len(metrics)}; remove it"
        yield Problem(("scheduler", "plateau"), message, at_key=True)
    yield from _each(metrics)


def _each(metrics: Sequence[Metric]) -> Iterator[Problem]:
    for place, metric in enumerate(metrics):
        before = [other.name for other in islice(metrics, place)]
        if metric.name in before:
            message = f"is {shown(metric.name)}, as in metrics[{before.index(metric.name)}]"
            yield Problem(("metrics", place, "name"), f"{message}; give each metric once")
        if metric.select == "best":
            message = "is best, which is another step for each of several metrics"
            yield Problem(("metrics", place, "select"), f"{message}; choose last or mean_5")
