"""The lineage of a population: who copied whom, and how values changed over the steps."""

from collections.abc import Mapping
from typing import Any

from hposvc.analysis.lineage import winner_lineage
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    INK,
    MUTED,
    Frame,
    Linear,
    LogScale,
    Picture,
    Scale,
    fitted,
    stairs,
)
from hposvc.state.trial import TrialState
from hposvc.text import count, number, value_text

MOST_ROWS = 24  # trials in the picture: the best, and the ancestors of the best
MOST_PANELS = 6  # parameters in the picture
MOST_TRIALS = 1000  # in the data, the best
PANEL = 150  # pixels


def build(history: History) -> Chart | None:
    """Return the chart; None: no trial copied another one, or changed its values."""
    state = history.state
    trials = [trial for trial in state.trials.values() if trial.segments and trial.step]
    if not any(len(trial.segments) > 1 for trial in trials):
        return None
    winner = winner_lineage(state)
    ancestors = {segment.trial for segment in winner}
    begun = (trial for trial in state.ranked() if trial.segments and trial.step)
    ranked = sorted(begun, key=lambda trial: trial.id not in ancestors)
    spec = state.spec
    data = {
        "metric": spec.objectives[0].name,
        "goal": spec.objectives[0].goal,
        "unit": spec.unit,
        "best": winner[-1].trial if winner else None,
        "of": len(trials),
        "parameters": _changed(trials),
        "winner": [
            {
                "trial": segment.trial,
                "first": segment.first,
                "last": segment.last,
                "params": dict(segment.params),
            }
            for segment in winner
        ],
        "trials": [_row(trial) for trial in ranked[:MOST_TRIALS]],
    }
    return Chart("lineage", "Lineage and schedules", _message(data), data)


def _changed(trials: list[TrialState]) -> list[str]:
    """Return the numeric parameters that changed within a trial."""
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    return [
        name
        for name in names
        if any(
            len({repr(segment.params.get(name)) for segment in trial.segments}) > 1
            for trial in trials
        )
        and all(
            isinstance(segment.params.get(name), int | float | None)
            for trial in trials
            for segment in trial.segments
        )
    ]


def _row(trial: TrialState) -> dict[str, Any]:
    ends = [segment.after for segment in trial.segments[1:]] + [trial.step]
    return {
        "trial": trial.id,
        "state": trial.state,
        "value": trial.values[0] if trial.values else None,
        "segments": [
            {
                "after": segment.after,
                "last": end,
                "parent": segment.parent,
                "parent_step": None if segment.start is None else segment.start.step,
                "params": dict(segment.params),
            }
            for segment, end in zip(trial.segments, ends, strict=True)
        ],
    }


def _message(data: Mapping[str, Any]) -> str:
    copies = sum(bool(one["parent"]) for row in data["trials"] for one in row["segments"])
    text = f"{count(data['of'], 'trial')} made {copies} {'copy' if copies == 1 else 'copies'}"
    if not data["winner"]:
        return f"{text}; none has a value yet."
    trials = list(dict.fromkeys(segment["trial"] for segment in data["winner"]))
    if len(trials) == 1:
        return f"{text}; the weights of the best, {trials[0]}, were trained by itself alone."
    return (
        f"{text}; the best, {trials[-1]}, descends from {', '.join(trials[:-1])}: its values are a "
        "schedule, which `hposvc schedule` writes as a spec."
    )


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    rows = [row for row in data["trials"] if row["segments"]][:MOST_ROWS]
    names = data["parameters"][:MOST_PANELS]
    height = 18.0 if len(rows) <= 16 else 13.0
    panels = -(-len(names) // 2)
    frame = Frame(58, 40, 760 - 86, 40 + height * len(rows))
    picture = Picture(
        "Lineage and schedules",
        f"copies among {count(len(rows), 'trial')} by {data['unit']}",
        height=frame.bottom + 50 + panels * PANEL,
    )
    last = max(row["segments"][-1]["last"] for row in data["trials"])
    x = Linear(0.0, float(last), frame.left, frame.right)
    picture.text(2, 20, f"who copied whom, {len(rows)} of {count(data['of'], 'trial')}")
    picture.text(picture.width - 18, 34, fitted(data["metric"], 110, 11), MUTED, "end", 11)
    picture.legend(
        Frame(frame.left, 38, frame.right - 20, 0),
        [
            ("the best trial's weights", BEST, "line"),
            ("other trials", FAINT, "line"),
            ("a copy", MUTED, "dot"),
        ],
    )
    places = {row["trial"]: frame.top + height * (at + 0.5) for at, row in enumerate(rows)}
    for row in rows:
        _draw_row(picture, frame, x, places, row, data)
    _draw_winner(picture, x, places, data)
    picture.x_axis(frame, x, data["unit"])
    middle = (picture.width + 20) / 2
    for place, name in enumerate(names):
        left = 58.0 if place % 2 == 0 else middle + 40
        right = middle - 20 if place % 2 == 0 and len(names) > 1 else picture.width - 18
        top = frame.bottom + 50 + PANEL * (place // 2) + 26
        _draw_schedule(picture, Frame(left, top, right, top + PANEL - 60), name, last, data)
    return picture.svg()


def _draw_row(
    picture: Picture,
    frame: Frame,
    x: Scale,
    places: Mapping[str, float],
    row: Mapping[str, Any],
    data: Mapping[str, Any],
) -> None:
    """Draw a trial's steps, and the copies that it made."""
    y, best = places[row["trial"]], row["trial"] == data["best"]
    end = row["segments"][-1]["last"]
    picture.line([(x(0), y), (x(end), y)], FAINT, 2)
    colour = BEST if best else INK
    picture.text(frame.left - 8, y + 4, row["trial"], colour, "end", 11, bold=best)
    if row["value"] is not None:
        text = number(row["value"])
        picture.text(picture.width - 18, y + 4, text, colour, "end", 11, bold=best)
    for segment in row["segments"]:
        parent = places.get(segment["parent"] or "")
        if parent is None or segment["parent_step"] is None:
            continue
        words = f"{row['trial']} copied {segment['parent']} at {data['unit']} {segment['after']}"
        ends = [(x(segment["parent_step"]), parent), (x(segment["after"]), y)]
        picture.line(ends, MUTED, 1, 0.8, hover=words)
        picture.dot(x(segment["after"]), y, MUTED, 2.6, hover=words)


def _draw_winner(
    picture: Picture, x: Scale, places: Mapping[str, float], data: Mapping[str, Any]
) -> None:
    """Draw the segments that trained the best trial's weights, and the copies between them."""
    before: tuple[float, float] | None = None
    for segment in data["winner"]:
        y = places.get(segment["trial"])
        if y is None:
            before = None
            continue
        start, end = (x(segment["first"] - 1), y), (x(segment["last"]), y)
        words = ", ".join(
            f"{name} {value_text(value)}" for name, value in segment["params"].items()
        )
        if before is not None:
            picture.line([before, start], BEST, 2)
        picture.line([start, end], BEST, 3.4, hover=f"{segment['trial']}: {words}")
        if before is not None and before[1] != y:
            picture.dot(*start, BEST, 3.4)
        before = end


def _draw_schedule(
    picture: Picture, frame: Frame, name: str, last: int, data: Mapping[str, Any]
) -> None:
    """Draw a parameter's values over the steps."""
    values = [
        segment["params"].get(name)
        for row in data["trials"]
        for segment in row["segments"]
        if segment["params"].get(name) is not None
    ]
    wide = min(values) > 0 and max(values) / min(values) > 20
    y: Scale
    if wide:
        y = LogScale.around(values, frame.bottom, frame.top)
    else:
        y = Linear.around(values, frame.bottom, frame.top, 4)
    x = Linear(0.0, float(last), frame.left, frame.right)
    picture.y_axis(frame, y)
    picture.x_axis(frame, x)
    width = frame.right - frame.left
    picture.text(frame.left - 40, frame.top - 10, fitted(name, width), INK, bold=True)
    for row in data["trials"][:MOST_ROWS]:
        parts = [(one["after"], one["last"], one["params"]) for one in row["segments"]]
        _draw_steps(picture, x, y, parts, name, FAINT, 1.2)
    winner = [(one["first"] - 1, one["last"], one["params"]) for one in data["winner"]]
    _draw_steps(picture, x, y, winner, name, BEST, 2.6)


def _draw_steps(
    picture: Picture,
    x: Scale,
    y: Scale,
    parts: list[tuple[int, int, Mapping[str, Any]]],
    name: str,
    colour: str,
    width: float,
) -> None:
    points = [
        (x(after), y(params[name])) for after, _, params in parts if params.get(name) is not None
    ]
    if points:
        end = (x(parts[-1][1]), points[-1][1])
        picture.line([*stairs(points), end], colour, width)
