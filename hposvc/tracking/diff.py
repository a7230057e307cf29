"""Differences between an MLflow run and what the journal says that it should hold."""

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

from hposvc.text import listed
from hposvc.tracking.answers import Difference, Remedy
from hposvc.tracking.mlflow_client import Run
from hposvc.tracking.projection import MetricPoint, RunContent
from searchers import as_text

SHOWN = 5  # steps named in a message

Exact = tuple[int, int, str]  # a point of a metric as compared: (step, ms, value)


def compare_attributes(
    name: str, run: Run, at_least: RunContent, at_most: RunContent, nested: Mapping[str, str]
) -> Iterator[Difference]:
    """Yield the differences in status, tags and params.

    Args:
        at_least: what the run has certainly been sent.
        at_most: what the run may have been sent; where the two differ, nothing is certain.
        nested: further tags.
    """
    ended = (run.info.status, run.info.end_time)
    # While a trial is not over, the user's own MLflow calls may have ended its run for now.
    if at_least.status is not None and ended != (at_least.status, at_least.end):
        end = f"{at_least.status} at {at_least.end}"
        yield Difference(name, "status", f"{ended[0]} at {ended[1]}", end)
    for tag, text in {**at_least.tags, **nested}.items():
        settled = tag in nested or at_most.tags.get(tag) == text
        if settled and run.data.tags.get(tag) != text:
            yield Difference(name, f"tag {tag}", _quoted(run.data.tags.get(tag)), _quoted(text))
    for param, value in at_least.params.items():
        actual, text = run.data.params.get(param), as_text(value)
        if actual != text:
            remedy: Remedy = "tell" if actual is None else "kept"
            yield Difference(name, f"param {param}", _quoted(actual), _quoted(text), remedy)


def compare_points(
    name: str, metric: str, points: Iterable[MetricPoint], at_least: RunContent, at_most: RunContent
) -> Iterator[Difference]:
    """Yield the difference in the points of a metric, compared by step, time and value."""
    actual, expected_points = _exact_points(metric, points), _exact_points(metric, at_least.points)
    missing, surplus = expected_points - actual, actual - _exact_points(metric, at_most.points)
    if not missing and not surplus:
        return
    # Tracker.missing identifies points by step and time, so it would miss another value.
    present = {(step, time) for step, time, _ in actual}
    hidden = any((step, time) in present for step, time, _ in missing)
    remedy: Remedy = "renew" if surplus or hidden else "tell"
    parts = [f"{len(actual)}"]
    parts += [f"not those of steps {_format_steps(missing)}"] if missing else []
    parts += [f"surplus ones at steps {_format_steps(surplus)}"] if surplus else []
    yield Difference(
        name, f"points of {metric}", ", ".join(parts), f"{len(expected_points)}", remedy
    )


def compare_data(
    name: str, logged: Collection[tuple[str, str]], expected: RunContent
) -> Iterator[Difference]:
    """Yield the missing data sets, by name and digest; the trial may have logged others itself."""
    for data in expected.inputs:
        if (data.name, data.digest) not in logged:
            yield Difference(name, f"data set {data.name}", "none", f"digest {data.digest}")


def _exact_points(metric: str, points: Iterable[MetricPoint]) -> set[Exact]:
    return {
        (point.step, point.time, _stored_value(point.value))
        for point in points
        if point.name == metric
    }


def _stored_value(value: float) -> str:
    """Format a value as MLflow's tables store it: infinity becomes the largest float."""
    if math.isinf(value):
        value = math.copysign(sys.float_info.max, value)
    return repr(float(value))


def _format_steps(points: Iterable[Exact]) -> str:
    return listed([f"{step}" for step in sorted({step for step, _, _ in points})], SHOWN)


def _quoted(text: str | None) -> str:
    if text is None:
        return "none"
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
