"""All parameters and metrics of all trials side by side: parallel coordinates."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import quoteattr

from hposvc.analysis.parameter_effects import best_and_random, last_step
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.parameters import Axis, axis, describe, rounded, value_of
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    GRID,
    INK,
    MUTED,
    PAPER,
    SERIES,
    WIDTH,
    Frame,
    LogScale,
    Picture,
    fitted,
    robust,
    text_width,
)
from hposvc.text import count, value_text
from searchers import Choice, Value

MOST = 2000  # trials in the data
LINES = 200  # trials drawn
LEADERS = 8  # trials that are compared with the others, and as many that are drawn stronger
NARROW = 0.4  # share of a range; eight values at random lie so close together once in 100 times
AXES = 12  # drawn
LEAST = 104.0  # pixels of an axis, where all are drawn


def build(history: History) -> Chart | None:
    """Return the chart; None: nothing is searched, or no trial was tried."""
    state = history.state
    spec, space = state.spec, state.spec.space
    trials = [trial for trial in state.ranked() if trial.values or trial.over]
    if not space.searched or not trials:
        return None
    seen = [trial.observation() for trial in trials]
    kept = best_and_random(range(len(trials)), MOST)
    names = [name for name in space if name in space.searched]
    axes = [describe(name, space[name]) for name in names]
    columns: list[list[Any]] = [[seen[i].params.get(name) for i in kept] for name in names]
    steps = [last_step(seen[index]) for index in kept]
    if len(set(steps)) > 1:
        axes.append(_measured(history.state.spec.unit, [float(step) for step in steps], "maximize"))
        columns.append(steps)
    for number_, metric in enumerate(spec.objectives):
        values = [value_of(trials[index], number_) for index in kept]
        axes.append(_measured(metric.name, values, metric.goal))
        columns.append(values)
    data = {
        "metric": spec.objectives[0].name,
        "goal": spec.objectives[0].goal,
        "best": history.state.best,
        "of": len(trials),
        "axes": axes,
        "columns": columns,
        "trial": [trials[index].id for index in kept],
        "rank": [1 - index / max(1, len(trials) - 1) for index in kept],
    }
    leaders = [seen[index].params for index in range(len(trials))[:LEADERS] if trials[index].values]
    message = _message(history, leaders, len(trials), len(set(steps)) > 1)
    return Chart("parallel", "Parameters and results", message, data)


def _measured(name: str, values: Sequence[float | None], goal: str) -> dict[str, Any]:
    """Return the axis of a metric, or of steps."""
    scale = robust(values, 0.0, 1.0, goal)
    kind = "log" if isinstance(scale, LogScale) else "linear"
    return {"name": name, "scale": kind, "low": scale.low, "high": scale.high, "categories": []}


def _message(
    history: History, leaders: Sequence[Mapping[str, Value]], trials: int, steps: bool
) -> str:
    """Return where the best trials lie."""
    spec, narrow, wide = history.state.spec, [], 0
    mixed = (
        f" Only trials at the same {spec.unit} can be compared: brush that axis first."
        if steps
        else ""
    )
    if len(leaders) < LEADERS or trials < 2 * LEADERS or spec.several:
        return (
            f"Each line is one of {count(trials, 'trial')}, with its parameters and results.{mixed}"
        )
    for name in spec.space.searched:
        values = [params[name] for params in leaders if name in params]
        domain = spec.space[name]
        if len(values) < LEADERS:
            wide += 1
        elif isinstance(domain, Choice):
            same = all(value == values[0] for value in values)
            narrow += [f"{name} = {value_text(values[0])}"] if same else []
            wide += not same
        else:
            units = [domain.to_unit(value) for value in values]
            close = max(units) - min(units) <= NARROW
            low, high = (domain.from_unit(end) for end in (min(units), max(units)))
            ends = f"{rounded(low)} to {rounded(high)}"
            narrow += [f"{name} from {ends}"] if close else []
            wide += not close
    if not narrow:
        spread = "spread over the whole range of every parameter"
    else:
        spread = f"agree in {', '.join(narrow[:4])}"
        spread += f", and differ widely in {count(wide, 'other')}" if wide else ""
    return f"The best {LEADERS} of {count(trials, 'trial')} {spread}.{mixed}"


def views(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the chart as SVG, and with all trials and axes of its data."""
    width = max(WIDTH, LEAST * len(data["axes"]))
    return {
        "Some trials": draw(data),
        "All trials": draw(data, width, len(data["axes"]), len(data["trial"])),
    }


def draw(
    data: Mapping[str, Any], width: float = WIDTH, most_axes: int = AXES, most_lines: int = LINES
) -> str:
    """Return the chart as SVG."""
    axes, columns = data["axes"], data["columns"]
    picture = Picture("Parameters and results", f"{len(data['trial'])} trials", width)
    hidden = max(0, len(axes) - most_axes)
    if hidden:  # results stand last
        first = most_axes - 3
        axes, columns = [*axes[:first], *axes[-3:]], [*columns[:first], *columns[-3:]]
    frame = Frame(34, 50, picture.width - 62, picture.height - 58)
    gap = (frame.right - frame.left) / max(1, len(axes) - 1)
    places = [axis(each_axis, frame.bottom, frame.top, 4) for each_axis in axes]
    rows = sorted(range(len(data["trial"])), key=lambda row: data["rank"][row])
    many = rows[:-LEADERS]
    every = -(-len(many) // most_lines) if many else 1
    shown = [*many[::every], *rows[-LEADERS:]]
    for row in shown:
        best = data["trial"][row] == data["best"]
        leads = row in rows[-LEADERS:]
        colour = BEST if best else SERIES[0] if leads else FAINT
        values = [column[row] for column in columns]
        points = [
            (frame.left + gap * at, _height(each_axis, value, frame))
            for at, (each_axis, value) in enumerate(zip(places, values, strict=True))
        ]
        pairs = zip(axes, values, strict=True)
        known = [f"{one['name']}: {value_text(value)}" for one, value in pairs if value is not None]
        opacity = 1.0 if best else 0.75 if leads else 0.5 if len(shown) < 80 else 0.3
        with picture.mark_of(data["trial"][row], "\n".join([data["trial"][row], *known])):
            picture.line(points, colour, 2.6 if best else 1.4 if leads else 1.0, opacity)
    for at, (each_axis, place) in enumerate(zip(axes, places, strict=True)):
        _draw_axis(
            picture, frame, each_axis, place, frame.left + gap * at, gap, at % 2 == 1 and gap < 90
        )
    if any(None in column for column in columns):
        y = frame.bottom + 20
        picture.line([(frame.left, y), (frame.right, y)], GRID, 1, dashes="2 3")
        picture.text(frame.right + 6, y + 4, "none", MUTED, size=10)
    part = "" if every == 1 else f" Of the others, one of {every} is drawn."
    part += f" {count(hidden, 'more parameter')} not shown." if hidden else ""
    strong = (
        "Orange: the best trial; blue: the next." if data["best"] else "Blue: trials of the front."
    )
    picture.note(f"{strong}{part}")
    return picture.svg()


def _height(place: Axis, value: Any, frame: Frame) -> float:
    """Return where a line crosses an axis: below it without a value."""
    if value is None:
        return frame.bottom + 20
    try:
        at = place.place(value)
    except ValueError:  # not above zero, on a logarithmic axis
        at = frame.bottom
    return min(max(at, frame.top), frame.bottom)


def _draw_axis(
    picture: Picture,
    frame: Frame,
    one: Mapping[str, Any],
    place: Axis,
    x: float,
    gap: float,
    lower: bool,
) -> None:
    """Draw an axis with its name above and its values to the right."""
    axis_data = json.dumps({**one, "x": x, "top": frame.top, "bottom": frame.bottom})
    picture.parts.append(f"<g data-axis={quoteattr(axis_data)}>")
    picture.line([(x, frame.top), (x, frame.bottom)], MUTED, 1)
    room = gap * (1.9 if gap < 90 else 1) - 10
    name = fitted(one["name"], max(30.0, room))
    half = text_width(name) / 2
    middle = min(max(x, half + 2), picture.width - half - 2)
    picture.text(middle, 32 if lower else 16, name, INK, "middle", hover=one["name"])
    ticks = place.scale.ticks
    for tick in ticks[:: -(-len(ticks) // 8) or 1]:
        label = fitted(tick.label, min(gap - 12, 56), 10)
        width = text_width(label, 10)
        picture.box(x + 4, tick.at - 7, width + 2, 13, PAPER, 0.75)
        picture.line([(x - 3, tick.at), (x + 3, tick.at)], MUTED, 1)
        picture.text(x + 5, tick.at + 3.5, label, MUTED, size=10)
    picture.parts.append("</g>")
