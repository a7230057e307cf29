"""The best value so far, against trials, time and cost."""

from collections.abc import Mapping
from typing import Any

from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    MUTED,
    TICKS,
    WIDTH,
    Frame,
    Linear,
    Picture,
    Scale,
    ScaleOf,
    fitted,
    robust,
    stairs,
    time_unit,
    whole,
)
from hposvc.text import cost_text, count, duration, number

MOST_DOTS = 1500  # trials drawn with words on hover; of more, every place is drawn once


def build(history: History) -> Chart | None:
    """Return the chart; None: no trial has a value, or there are several metrics."""
    state = history.state
    if state.spec.several or not history.improvements:
        return None
    metric = state.spec.objectives[0]
    marks = history.improvements
    trials = [
        trial
        for trial in state.trials.values()
        if trial.value is not None and trial.id in history.spent
    ]
    last = (history.readings[trial.id][-1] for trial in trials)
    return Chart(
        "best",
        "Best value so far",
        _message(history),
        {
            "metric": metric.name,
            "goal": metric.goal,
            "target": metric.target,
            "cost_unit": history.cost_unit,
            "trial": [mark.trial for mark in marks],
            "value": [mark.value for mark in marks],
            "trials": [mark.trials for mark in marks],
            "seconds": [mark.time - history.start for mark in marks],
            "cost": [mark.cost for mark in marks],
            "until": {
                "trials": len(state.trials),
                "seconds": max(0.0, state.now - history.start),
                "cost": history.cost(history.rank_s),
            },
            "others": {
                "trial": [trial.id for trial in trials],
                "trials": [trial.number + 1 for trial in trials],
                "seconds": [reading.time - history.start for reading in last],
                "cost": [history.spent[trial.id] for trial in trials],
                "value": [trial.value for trial in trials],
                "state": [trial.state for trial in trials],
            },
        },
    )


def _message(history: History) -> str:
    """Return which trial is the best, and what was tried after it."""
    last, trials = history.improvements[-1], history.state.trials
    total, after = len(trials), len(trials) - trials[last.trial].number - 1
    sentence = f"{last.trial} is the best of {count(total, 'trial')}, with {number(last.value)}"
    if not after:
        return f"{sentence}; it is the newest, so more trials may well find better."
    begun = next(mark for mark in history.improvements if mark.trial == last.trial)
    left = history.cost(history.rank_s) - begun.cost
    return (
        f"{sentence}; it took the lead after {duration(begun.time - history.start)}, and the "
        f"{count(after, 'trial')} begun after it found no better value "
        f"({cost_text(left, history.cost_unit)} since then)."
    )


def views(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the chart as SVG: against trials, time and cost, and with all values."""
    names = {"trials": "By trials", "seconds": "By time", "cost": f"By {data['cost_unit']}"}
    drawn = {name: draw(data, way) for way, name in names.items() if data["until"][way] > 0}
    return {**drawn, "All values": draw(data, scale=whole)}


def draw(
    data: Mapping[str, Any], against: str = "trials", width: float = WIDTH, scale: ScaleOf = robust
) -> str:
    """Return the chart as SVG.

    Args:
        against: trials, seconds or cost.
    """
    size, unit = _unit(data, against)
    picture = Picture("Best value so far", f"{data['metric']} against {unit}", width)
    frame = picture.frame(top=36 if width >= WIDTH else 54)
    others = data["others"]
    until = data["until"][against] / size
    most = min(TICKS, until) if against == "trials" else TICKS  # no tick between two trials
    x = Linear(0.0, float(until) or 1.0, frame.left, frame.right, most)
    y = scale([*others["value"], *data["value"]], frame.bottom, frame.top, data["goal"])
    picture.y_axis(frame, y)
    picture.text(2, 18, fitted(f"{data['metric']}, {data['goal']}d", max(300, width / 2)))
    picture.x_axis(frame, x, unit)
    picture.legend(
        frame,
        [
            ("best so far", BEST, "line"),
            ("a trial", FAINT, "dot"),
            ("stopped early", FAINT, "ring"),
        ],
    )
    with picture.clipped(frame):
        _draw_others(picture, others, [place / size for place in others[against]], x, y)
        if data["target"] is not None:
            level = y(data["target"])
            picture.line([(frame.left, level), (frame.right, level)], MUTED, 1, dashes="4 3")
            picture.text(frame.left + 4, level - 4, "target", MUTED, size=11)
        points = [
            (x(place / size), y(value))
            for place, value in zip(data[against], data["value"], strict=True)
        ]
        picture.line([*stairs(points), (frame.right, points[-1][1])], BEST, 2.4)
        leader = None
        for (at, level), trial, value in zip(points, data["trial"], data["value"], strict=True):
            if trial != leader:
                picture.dot(at, level, BEST, 3.2, hover=f"{trial}: {number(value)}")
            leader = trial
    _label(picture, frame, points[-1], f"{data['trial'][-1]}: {number(data['value'][-1])}", data)
    return picture.svg()


def _unit(data: Mapping[str, Any], against: str) -> tuple[float, str]:
    """Return the unit of an axis: its size, and its name."""
    if against == "seconds":
        size, unit = time_unit(data["until"]["seconds"])
        return size, f"{unit} since the start"
    return (1, "trials begun") if against == "trials" else (1, f"{data['cost_unit']} spent")


def _draw_others(
    picture: Picture, others: Mapping[str, Any], places: list[float], x: Scale, y: Scale
) -> None:
    """Draw each trial where it last reported."""
    if len(places) > MOST_DOTS:
        pairs = zip(places, others["value"], strict=True)
        picture.dots([(x(place), y(value)) for place, value in pairs], FAINT)
        return
    rows = zip(places, others["value"], others["trial"], others["state"], strict=True)
    for place, value, trial, state in rows:
        hover = f"{trial}: {number(value)}, {state.lower()}"
        picture.dot(x(place), y(value), FAINT, 2.6, hover=hover, hollow=state == "STOPPED")


def _label(
    picture: Picture, frame: Frame, point: tuple[float, float], text: str, data: Mapping[str, Any]
) -> None:
    """Write the best value beside the end of its line, on the side without trials."""
    x, level = point
    y = level - 9 if data["goal"] == "maximize" else level + 18
    y = min(max(y, frame.top - 2), frame.bottom - 5)
    left = x < (frame.left + frame.right) / 2
    picture.text(x if left else frame.right, y, text, BEST, "start" if left else "end", bold=True)
