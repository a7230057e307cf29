"""The best value so far of several groups of sweeps, with intervals, against what they spent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hposvc.analysis.comparison import Comparison, SweepRun
from hposvc.estimate import CONFIDENCE
from hposvc.reporting.chart import Chart
from hposvc.reporting.svg import (
    INK,
    MUTED,
    SERIES,
    Frame,
    Linear,
    Picture,
    Scale,
    fitted,
    robust,
    stairs,
    text_width,
    time_unit,
)
from hposvc.spec.metrics import Metric
from hposvc.text import number

POINTS = 120  # of a group's line
MOST_SWEEPS = 60  # drawn as thin lines
EQUAL = "equal cost"
EARLY = 0.25  # of the equal cost: values before it may lie beyond the picture


def build(comparison: Comparison, metric: Metric, cost: str, unit: str, message: str) -> Chart:
    """Return the chart of a comparison.

    Args:
        cost: hours, trials or time.
        unit: of costs, for the axis.
    """
    single = len(comparison.tasks) == 1
    budget = next(iter(comparison.budgets.values())) if single else 1.0
    target = next(iter(comparison.targets.values())) if single else None
    shown = comparison.runs if single and len(comparison.runs) <= MOST_SWEEPS else []
    return Chart(
        "comparison",
        "Best value so far at equal cost",
        message,
        {
            "metric": metric.name,
            "goal": metric.goal,
            "tasks": len(comparison.tasks),
            "cost": cost,
            "unit": unit,
            "equal_cost": budget,
            "target": None if target is None else metric.loss(target),
            "confidence": CONFIDENCE,
            "groups": [_line(comparison, group, metric, budget) for group in comparison.groups],
            "sweeps": [_sweep(run, metric) for run in shown],
        },
    )


def _line(comparison: Comparison, group: str, metric: Metric, budget: float) -> dict[str, Any]:
    """Return a group's mean best value at many costs, as far as all its sweeps went."""
    runs = [run for unit in comparison.samples[group].units for run in unit]
    end = min(run.end / (comparison.budgets[run.task] or 1.0) for run in runs)
    fractions = [float(each) for each in np.linspace(0, end, POINTS + 1)[1:]]
    sign = 1.0 if len(comparison.tasks) > 1 else metric.loss(1.0)
    pairs = [
        (fraction * budget, point.map(lambda loss: sign * loss).data())
        for fraction, point in zip(fractions, comparison.curve(group, fractions), strict=True)
        if point is not None
    ]
    return {
        "group": group,
        "sweeps": len(runs),
        "at": [at for at, _ in pairs],
        "value": [point["mean"] for _, point in pairs],
        "low": [point["low"] for _, point in pairs],
        "high": [point["high"] for _, point in pairs],
    }


def _sweep(run: SweepRun, metric: Metric) -> dict[str, Any]:
    return {
        "sweep": run.sweep,
        "group": run.group,
        "at": [*run.costs, run.end],
        "value": [metric.loss(loss) for loss in (*run.losses, run.losses[-1])],
    }


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    groups = [group for group in data["groups"] if group["at"]]
    scaled = data["tasks"] > 1
    goal = "minimize" if scaled else data["goal"]
    size, unit = _unit(data)
    picture = Picture(
        "Best value so far at equal cost",
        f"{data['metric']} of {len(groups)} groups against {unit}",
    )
    frame = picture.frame(top=44, right=130)
    last = max([data["equal_cost"], *(group["at"][-1] for group in groups)]) / size
    x = Linear(0.0, last or 1.0, frame.left, frame.right)
    values = [
        value
        for line in (*groups, *data["sweeps"])
        for at, value in zip(line["at"], line["value"], strict=True)
        if at >= EARLY * data["equal_cost"]
    ]
    y = robust(values, frame.bottom, frame.top, goal)
    title = "loss, in deviations within its task" if scaled else f"{data['metric']}, {goal}d"
    picture.y_axis(frame, y, title)
    picture.x_axis(frame, x, unit)
    colours = {group["group"]: SERIES[place % len(SERIES)] for place, group in enumerate(groups)}
    with picture.clipped(frame):
        for group in groups:
            _draw_band(picture, group, size, x, y, colours[group["group"]])
        for sweep in data["sweeps"]:
            points = [
                (x(at / size), y(value))
                for at, value in zip(sweep["at"], sweep["value"], strict=True)
            ]
            colour = colours.get(sweep["group"], MUTED)
            alone = next(g["sweeps"] for g in data["groups"] if g["group"] == sweep["group"]) == 1
            picture.line(
                stairs(points),
                colour,
                2.4 if alone else 1,
                1 if alone else 0.35,
                "",
                sweep["sweep"],
            )
        _draw_equal_cost(picture, frame, data, size, x, y)
        for group in groups:
            if group["sweeps"] > 1 or not data["sweeps"]:
                points = _points(group, "value", size, x, y)
                picture.line(points, colours[group["group"]], 2.4, hover=group["group"])
    at = x(data["equal_cost"] / size)
    half = text_width(EQUAL, 11) / 2
    picture.text(min(at, frame.right - half), frame.top - 5, EQUAL, INK, "middle", 11)
    _draw_names(picture, frame, groups, colours, y)
    if any(value is not None for group in groups for value in group["low"]):
        picture.legend(frame, [(f"mean, and its {data['confidence']:.0%} interval", MUTED, "box")])
    return picture.svg()


def _unit(data: Mapping[str, Any]) -> tuple[float, str]:
    """Return the unit of the axis: its size, and its name."""
    if data["tasks"] > 1:
        return 1.0, "share of the equal cost"
    if data["cost"] == "time":
        length, unit = time_unit(
            max((group["at"][-1] for group in data["groups"] if group["at"]), default=0.0)
        )
        return float(length), f"{unit} at work"
    return 1.0, "trials begun" if data["cost"] == "trials" else f"{data['unit']} spent"


def _points(
    group: Mapping[str, Any], name: str, size: float, x: Scale, y: Scale
) -> list[tuple[float, float]]:
    pairs = zip(group["at"], group[name], strict=True)
    return [(x(at / size), y(value)) for at, value in pairs if value is not None]


def _draw_band(
    picture: Picture, group: Mapping[str, Any], size: float, x: Scale, y: Scale, colour: str
) -> None:
    """Fill the interval of a group's mean."""
    low, high = _points(group, "low", size, x, y), _points(group, "high", size, x, y)
    picture.area([*low, *reversed(high)], colour, 0.16)


def _draw_equal_cost(
    picture: Picture, frame: Frame, data: Mapping[str, Any], size: float, x: Scale, y: Scale
) -> None:
    """Draw where values are compared, and the value that all groups reach."""
    at = x(data["equal_cost"] / size)
    picture.line([(at, frame.top), (at, frame.bottom)], INK, 1, dashes="5 3", hover=EQUAL)
    if data["target"] is not None:
        level = y(data["target"])
        hover = f"target: {number(data['target'])}"
        picture.line(
            [(frame.left, level), (frame.right, level)], MUTED, 1, dashes="2 3", hover=hover
        )


def _draw_names(
    picture: Picture,
    frame: Frame,
    groups: list[dict[str, Any]],
    colours: Mapping[str, str],
    y: Scale,
) -> None:
    """Write the groups' names beside the ends of their lines, without overlaps."""
    wanted = sorted(
        (min(max(y(group["value"][-1]), frame.top), frame.bottom), group["group"])
        for group in groups
    )
    room = 16.0
    places: list[float] = []
    for level, _ in wanted:
        places.append(max(level, places[-1] + room) if places else level)
    limit = frame.bottom
    for n in reversed(range(len(places))):  # back up from the lower edge
        places[n] = min(places[n], limit)
        limit = places[n] - room
    for level, (_, name) in zip(places, wanted, strict=True):
        text = fitted(name, picture.width - frame.right - 10)
        picture.text(frame.right + 8, level + 4, text, colours[name], bold=True, hover=name)
