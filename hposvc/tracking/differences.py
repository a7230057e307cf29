"""What one run holds otherwise than it should."""

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hposvc.tracking.projection import Entry, Point
from hposvc.tracking.tracker import Run

SHOWN = 5  # steps that are named

# tell: telling the run again mends it. renew: MLflow takes no point back, so only a new run does.
# kept: the trial itself logged it, and MLflow changes no param; it stays.
Remedy = Literal["tell", "renew", "kept"]
Exact = tuple[int, int, str]  # a point of a metric as it is compared: step, ms, value


@dataclass(frozen=True)
class Difference:
    """Something in which MLflow does not hold what the journal says."""

    run: str  # its trial; empty: the sweep's own
    what: str
    found: str
    expected: str
    remedy: Remedy = "tell"


def of_words(
    name: str, run: Run, least: Entry, most: Entry, nested: Mapping[str, str]
) -> Iterator[Difference]:
    """Status, tags and params.

    Args:
        least: what it has been told, at least.
        most: what it may have been told; where the two differ, nothing is certain.
        nested: more tags.
    """
    ended = (run.info.status, run.info.end_time)
    # While a trial is not over, a user's own mlflow may have ended its run for the time being.
    if least.status is not None and ended != (least.status, least.end):
        end = f"{least.status} at {least.end}"
        yield Difference(name, "status", f"{ended[0]} at {ended[1]}", end)
    for tag, text in {**least.tags, **nested}.items():
        settled = tag in nested or most.tags.get(tag) == text
        if settled and run.data.tags.get(tag) != text:
            yield Difference(name, f"tag {tag}", _shown(run.data.tags.get(tag)), _shown(text))
    for param, text in least.params.items():
        found = run.data.params.get(param)
        if found != text:
            remedy: Remedy = "tell" if found is None else "kept"
            yield Difference(name, f"param {param}", _shown(found), _shown(text), remedy)


def of_points(
    name: str, metric: str, held: Iterable[Point], least: Entry, most: Entry
) -> Iterator[Difference]:
    """Points of one metric: each once, with its value and its time."""
    found, due = _exact(metric, held), _exact(metric, least.points)
    missing, surplus = due - found, found - _exact(metric, most.points)
    if not missing and not surplus:
        return
    # Tracker.missing tells a point by step and time: there it would not see another value.
    there = {(step, time) for step, time, _ in found}
    hidden = any((step, time) in there for step, time, _ in missing)
    remedy: Remedy = "renew" if surplus or hidden else "tell"
    parts = [f"{len(found)}"]
    parts += [f"not those of steps {_steps(missing)}"] if missing else []
    parts += [f"surplus ones at steps {_steps(surplus)}"] if surplus else []
    yield Difference(name, f"points of {metric}", ", ".join(parts), f"{len(due)}", remedy)


def of_data(name: str, held: Collection[tuple[str, str]], least: Entry) -> Iterator[Difference]:
    """Data sets, by name and digest; others may be there, which the trial itself logged."""
    for one in least.inputs:
        if (one.name, one.digest) not in held:
            yield Difference(name, f"data set {one.name}", "none", f"digest {one.digest}")


def _exact(metric: str, points: Iterable[Point]) -> set[Exact]:
    return {(one.step, one.time, _value(one.value)) for one in points if one.name == metric}


def _value(value: float) -> str:
    """As MLflow's tables hold it: what is infinite is the largest number there is."""
    if math.isinf(value):
        value = math.copysign(sys.float_info.max, value)
    return repr(float(value))


def _steps(points: Iterable[Exact]) -> str:
    steps: Sequence[int] = sorted({step for step, _, _ in points})
    shown = ", ".join(map(str, steps[:SHOWN]))
    return shown if len(steps) <= SHOWN else f"{shown} and {len(steps) - SHOWN} more"


def _shown(text: str | None) -> str:
    if text is None:
        return "none"
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
