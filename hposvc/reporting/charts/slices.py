"""Each parameter alone: the trials, and the value that the models expect along it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hposvc.analysis.parameter_effects import Explained, best_and_random, has_result, last_step
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.parameters import Axis, axis, describe, rounded, value_of
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    INK,
    MUTED,
    SERIES,
    Frame,
    Linear,
    LogScale,
    Mark,
    Picture,
    fitted,
    robust,
)
from hposvc.text import count
from searchers.explain.dependence import Dependence

MOST = 1000  # trials in the data
PANELS = 6  # parameters drawn, the most important
LITTLE = 0.05  # a parameter whose share may be lower is not named
ACROSS, PANEL = 3, 200.0  # panels beside each other; height of a panel


def build(history: History) -> Chart | None:
    """Return the chart; None: nothing is searched, or no trial has a value."""
    state = history.state
    spec, space = state.spec, state.spec.space
    pairs = [(trial, trial.observation()) for trial in state.ranked()]
    pairs = [pair for pair in pairs if has_result(pair[1])]
    if not space.searched or not pairs:
        return None
    kept = [pairs[index] for index in best_and_random(range(len(pairs)), MOST)]
    answers = history.explained()
    top = max(last_step(seen) for _, seen in kept)
    by_metric = {answer.metric: answer for answer in answers}
    metrics = []
    for place, metric in enumerate(spec.objectives):
        answer = by_metric.get(metric.name)
        metrics.append(
            {
                "metric": metric.name,
                "goal": metric.goal,
                "learnt": answer is not None and answer.learnt,
                "value": [value_of(trial, place) for trial, _ in kept],
                "expected": [] if answer is None else [_expected(cut) for cut in answer.slices],
            }
        )
    data = {
        "best": history.state.best,
        "of": len(pairs),
        "unit": history.state.spec.unit,
        "step": top,
        "parameters": [describe(name, space[name]) for name in space.searched],
        "metrics": metrics,
        "trial": [trial.id for trial, _ in kept],
        "complete": [last_step(seen) == top for _, seen in kept],
        "params": {name: [seen.params.get(name) for _, seen in kept] for name in space.searched},
    }
    message = " ".join(_message(answer, data) for answer in answers) or (
        f"{count(len(pairs), 'trial')} with a value are too few for a model: "
        "the dots are all that is known."
    )
    if any(last_step(seen) < top for _, seen in kept):
        message += f" Rings are trials that stopped before {data['unit']} {top}."
    return Chart("slices", "Each parameter alone", message, data)


def _expected(one: Dependence) -> dict[str, Any]:
    return {
        "parameter": one.names[0],
        "at": [*one.grids[0]],
        "mean": one.mean.tolist(),
        "deviation": one.deviation.tolist(),
    }


def _message(answer: Explained, data: Mapping[str, Any]) -> str:
    """Return where the models expect the best values of the parameters that matter."""
    if not answer.learnt:
        return (
            f"The models have not learnt yet what {answer.metric} depends on: trust the dots only."
        )
    sign = 1 if answer.goal == "minimize" else -1
    slopes, ends = [], []
    domains = {parameter["name"]: parameter for parameter in data["parameters"]}
    for share, cut in list(zip(answer.importance, answer.slices, strict=False))[:3]:
        if share.total.low < LITTLE:
            continue
        losses = [sign * mean for mean in cut.mean.tolist()]
        values = [pair for pair in zip(losses, cut.grids[0], strict=True) if pair[0] == pair[0]]
        value = min(values, key=lambda pair: pair[0])[1]
        numeric = domains[share.name]["scale"] != "category"
        sign_word = "near" if numeric else "with"
        slopes.append(f"{sign_word} {share.name} {'' if numeric else '= '}{rounded(value)}")
        if numeric and value in (cut.grids[0][0], cut.grids[0][-1]):
            ends.append(share.name)
    if not slopes:
        return f"The models do not know yet along which parameter {answer.metric} changes most."
    text = f"Averaged over all others, {answer.metric} is expected to be best {', '.join(slopes)}"
    text += f"; the range of {' and '.join(ends)} may end too early" if ends else ""
    return f"{text}."


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    panels = [
        (metric, name) for metric in data["metrics"] for name in _shown(metric, data["parameters"])
    ]
    down = -(-len(panels) // ACROSS)
    picture = Picture("Each parameter alone", "values by parameter", height=54 + PANEL * down)
    names: list[tuple[str, str, Mark]] = [("model", SERIES[0], "line"), ("trial", MUTED, "dot")]
    if not all(data["complete"]):
        names.append(("stopped early", FAINT, "ring"))
    if data["best"] is not None:
        names.append(("best", BEST, "dot"))
    picture.legend(Frame(0, 34, picture.width - 12, 0), names)
    width = picture.width / ACROSS
    domains = {parameter["name"]: parameter for parameter in data["parameters"]}
    for place, (metric, name) in enumerate(panels):
        left, top = width * (place % ACROSS), 30 + PANEL * (place // ACROSS)
        frame = Frame(left + 52, top + 34, left + width - 12, top + PANEL - 40)
        _draw_panel(picture, frame, metric, domains[name], data)
    hidden = len(data["parameters"]) * len(data["metrics"]) - len(panels)
    picture.note(
        "Band: one deviation of the models."
        + (f" {count(hidden, 'panel')} of less important parameters not shown." if hidden else "")
        + (f" {len(data['trial']):,} of {data['of']:,} trials." if data["of"] > MOST else "")
    )
    return picture.svg()


def _shown(metric: Mapping[str, Any], parameters: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the parameters drawn for a metric, the most important first."""
    names = [curve["parameter"] for curve in metric["expected"]]
    return (names or [parameter["name"] for parameter in parameters])[:PANELS]


def _draw_panel(
    picture: Picture,
    frame: Frame,
    metric: Mapping[str, Any],
    parameter: Mapping[str, Any],
    data: Mapping[str, Any],
) -> None:
    """Draw one parameter."""
    name, y = parameter["name"], _scale(metric, data["complete"], frame)
    curve = next((curve for curve in metric["expected"] if curve["parameter"] == name), None)
    x = axis(parameter, frame.left + 6, frame.right - 6, 3)
    ticks = y.ticks
    for tick in ticks[:: -(-len(ticks) // 5) or 1]:
        picture.line([(frame.left, tick.at), (frame.right, tick.at)], "var(--grid,#e3e7ec)", 1)
        picture.text(frame.left - 6, tick.at + 4, fitted(tick.label, 46, 10), MUTED, "end", 10)
    picture.text(frame.left, frame.top - 9, fitted(metric["metric"], 200, 11), MUTED, size=11)
    right = -1e9
    for tick in x.scale.ticks:
        label = fitted(tick.label, max(20.0, _band(x, frame)), 10)
        half = len(label) * 2.8
        at = min(max(tick.at, frame.left + half), frame.right - half)
        if at - half > right + 4:
            picture.text(at, frame.bottom + 14, label, MUTED, "middle", 10)
            right = at + half
    picture.line([(frame.left, frame.bottom), (frame.right, frame.bottom)], FAINT, 1)
    middle = (frame.left + frame.right) / 2
    title = fitted(name, frame.right - frame.left)
    picture.text(middle, frame.bottom + 30, title, INK, "middle", hover=name)
    with picture.clipped(frame):
        _draw_trials(picture, x, y, metric, data, name, frame)
        if curve is not None:
            _draw_model(picture, x, y, curve, parameter, 1.0 if metric["learnt"] else 0.4)


def _scale(metric: Mapping[str, Any], complete: Sequence[bool], frame: Frame) -> Linear | LogScale:
    """Return the scale of a metric, which all of its panels share."""
    values = [
        value for value, is_complete in zip(metric["value"], complete, strict=True) if is_complete
    ]
    ends = [
        mean + side * deviation
        for curve in metric["expected"]
        for mean, deviation in zip(curve["mean"], curve["deviation"], strict=True)
        if mean is not None
        for side in (-1, 1)
    ]
    scale = robust(values, frame.bottom, frame.top, metric["goal"])
    if isinstance(scale, LogScale) or not ends:
        return scale
    low, high = min(scale.low, min(ends)), max(scale.high, max(ends))
    return Linear.around([low, high], frame.bottom, frame.top)


def _band(x: Axis, frame: Frame) -> float:
    return (frame.right - frame.left) / max(1, min(8, len(x.scale.ticks)))


def _draw_trials(
    picture: Picture,
    x: Axis,
    y: Any,
    metric: Mapping[str, Any],
    data: Mapping[str, Any],
    name: str,
    frame: Frame,
) -> None:
    """Draw the trials, the best last; each category spreads its trials over its band."""
    rows = zip(data["trial"], data["params"][name], metric["value"], data["complete"], strict=True)
    best, dots = None, []
    for row, (trial, value, level, complete) in enumerate(rows):
        if value is None or level is None or (isinstance(y, LogScale) and level <= 0):
            continue
        at = x.place(value)
        if not isinstance(value, float):
            at += ((row * 0.618) % 1 - 0.5) * min(16.0, 0.5 * _band(x, frame))
        if trial == data["best"]:
            best = (at, y(level))
        elif frame.top - 4 <= y(level) <= frame.bottom + 4:
            dots.append((complete, at, y(level)))
    if len(dots) > 150:
        picture.dots([(at, level) for complete, at, level in dots if not complete], FAINT, 2.4)
        picture.dots([(at, level) for complete, at, level in dots if complete], MUTED, 3)
    else:
        for complete, at, level in sorted(dots):
            picture.dot(at, level, MUTED if complete else FAINT, 2.3, hollow=not complete)
    if best is not None:
        picture.dot(*best, BEST, 4)


def _draw_model(
    picture: Picture,
    x: Axis,
    y: Any,
    one: Mapping[str, Any],
    parameter: Mapping[str, Any],
    faint: float,
) -> None:
    """Draw the mean along a parameter, with a deviation to each side."""
    colour, floor = SERIES[0], y.low if isinstance(y, LogScale) else -float("inf")
    points = [
        (
            x.place(at),
            y(max(mean, floor)),
            y(max(mean - deviation, floor)),
            y(max(mean + deviation, floor)),
        )
        for at, mean, deviation in zip(one["at"], one["mean"], one["deviation"], strict=True)
        if mean is not None
    ]
    if parameter["scale"] == "category":
        for at, level, low, high in points:
            picture.line([(at, low), (at, high)], colour, 7, 0.3 * faint)
            picture.line([(at - 9, level), (at + 9, level)], colour, 2.4, faint)
        return
    band = [(at, low) for at, _, low, _ in points] + [(at, high) for at, _, _, high in points[::-1]]
    picture.area(band, colour, 0.18 * faint)
    picture.line([(at, level) for at, level, _, _ in points], colour, 2.2, faint)
