"""Two parameters together: the value that the models expect over the pairs that matter most."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hposvc.analysis.parameter_effects import Explained, best_and_random, has_result, last_step
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.parameters import axis, describe
from hposvc.reporting.svg import BEST, INK, MUTED, PAPER, SERIES, Frame, Picture, fitted
from hposvc.text import number

MOST = 150  # trials in the data of a pair
LEVELS = 9
FINE = 4  # cells drawn for one of the grid, each way
ACROSS, PANEL = 3, 270.0


def build(history: History) -> Chart | None:
    """Return the chart; None: too few results, or fewer than two parameters are searched."""
    state = history.state
    answers = [answer for answer in history.explained() if answer.pairs]
    if not answers:
        return None
    space = state.spec.space
    pairs = [(trial, trial.observation()) for trial in state.ranked()]
    pairs = [pair for pair in pairs if has_result(pair[1])]
    kept = [pairs[index] for index in best_and_random(range(len(pairs)), MOST)]
    top = max(last_step(seen) for _, seen in pairs)
    panels = [
        {
            "metric": answer.metric,
            "goal": answer.goal,
            "learnt": answer.learnt,
            "share": pair.share,
            "interaction": pair.interaction,
            "x": describe(pair.dependence.names[0], space[pair.dependence.names[0]]),
            "y": describe(pair.dependence.names[1], space[pair.dependence.names[1]]),
            "at_x": [*pair.dependence.grids[0]],
            "at_y": [*pair.dependence.grids[1]],
            "mean": pair.dependence.mean.tolist(),
            "deviation": pair.dependence.deviation.tolist(),
        }
        for answer in answers
        for pair in answer.pairs[: 3 if len(answers) == 1 else 2]
    ]
    names = dict.fromkeys(panel[side]["name"] for panel in panels for side in ("x", "y"))
    data = {
        "best": history.state.best,
        "unit": history.state.spec.unit,
        "step": top,
        "pairs": panels,
        "trial": [trial.id for trial, _ in kept],
        "complete": [last_step(seen) == top for _, seen in kept],
        "params": {name: [seen.params.get(name) for _, seen in kept] for name in names},
    }
    return Chart("contours", "Pairs of parameters", " ".join(map(_message, answers)), data)


def _message(answer: Explained) -> str:
    """Return how much the first pair explains, and whether it interacts."""
    if not answer.learnt:
        return (
            f"The models have not learnt yet what {answer.metric} depends on: these may be noise."
        )
    first = answer.pairs[0]
    left, other = first.dependence.names
    strongest = max(answer.pairs, key=lambda pair: pair.interaction)
    text = (
        f"{left} and {other} together explain {first.share:.0%} of the variation of {answer.metric}"
    )
    if strongest.interaction < 0.05:
        return f"{text}; no two parameters interact much (all below 5%), as far as the models see."
    a, b = strongest.dependence.names
    return (
        f"{text}; {a} and {b} interact ({strongest.interaction:.0%}): "
        f"the best value of one depends on the other."
    )


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    panels = data["pairs"]
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    picture = Picture("Pairs of parameters", "expected values", height=26 + PANEL * down)
    width = picture.width / ACROSS
    for place, panel in enumerate(panels):
        left, top = width * (place % across), PANEL * (place // across)
        frame = Frame(left + 50, top + 46, left + width - 12, top + PANEL - 46)
        _draw_panel(picture, frame, panel, data)
    marks = "Orange: the best trial; dots: trials" if data["best"] else "Dots: trials"
    rings = (
        "" if all(data["complete"]) else f", rings: stopped before {data['unit']} {data['step']}"
    )
    picture.note(f"Dark: better, in {LEVELS} levels. White: never together. {marks}{rings}.")
    return picture.svg()


def _draw_panel(
    picture: Picture, frame: Frame, panel: Mapping[str, Any], data: Mapping[str, Any]
) -> None:
    x = axis(panel["x"], frame.left, frame.right, 3)
    y = axis(panel["y"], frame.bottom, frame.top, 4)
    seen = [mean for row in panel["mean"] for mean in row if mean is not None]
    low, high = min(seen), max(seen)
    deviations = sorted(d for row in panel["deviation"] for d in row if d is not None)
    title = f"{panel['metric']}: {number(float(f'{low:.3g}'))} to {number(float(f'{high:.3g}'))}"
    room = frame.right - frame.left + 46
    picture.text(frame.left - 46, frame.top - 28, fitted(title, room, 11), INK, size=11)
    doubt = (
        f"deviation {deviations[len(deviations) // 2]:.2g}, interaction {panel['interaction']:.0%}"
    )
    doubt = doubt if panel["learnt"] else "not known yet"
    picture.text(frame.left - 46, frame.top - 12, fitted(doubt, room, 11), MUTED, size=11)
    _draw_cells(picture, frame, panel, low, high)
    for tick in x.scale.ticks[:: -(-len(x.scale.ticks) // 5) or 1]:
        label = fitted(tick.label, (frame.right - frame.left) / 4, 10)
        half = len(label) * 2.8
        at = min(max(tick.at, frame.left + half - 6), frame.right - half + 6)
        picture.text(at, frame.bottom + 14, label, MUTED, "middle", 10)
    for tick in y.scale.ticks[:: -(-len(y.scale.ticks) // 8) or 1]:
        picture.text(frame.left - 5, tick.at + 3.5, fitted(tick.label, 44, 10), MUTED, "end", 10)
    middle = (frame.left + frame.right) / 2
    names = f"{panel['x']['name']} → · {panel['y']['name']} ↑"
    picture.text(middle, frame.bottom + 32, fitted(names, room, 11), INK, "middle", 11, hover=names)
    columns = (data["params"][panel[side]["name"]] for side in ("x", "y"))
    best = None
    for trial, complete, a, b in zip(data["trial"], data["complete"], *columns, strict=True):
        if a is None or b is None:
            continue
        place = (x.place(a), y.place(b))
        if trial == data["best"]:
            best = place
        else:
            picture.dot(*place, PAPER, 2.6)
            picture.dot(*place, INK if complete else MUTED, 1.7, hollow=not complete)
    if best is not None:
        picture.dot(*best, PAPER, 6)
        picture.dot(*best, BEST, 4.4)


def _draw_cells(
    picture: Picture, frame: Frame, panel: Mapping[str, Any], low: float, high: float
) -> None:
    """Draw the expected value in levels, each row of equal level as one box."""
    across = _fine(panel["at_x"], panel["x"])
    upward = _fine(panel["at_y"], panel["y"])
    # Whole pixels leave no gaps between boxes.
    edges_x = [round(edge) for edge in np.linspace(frame.left, frame.right, len(across) + 1)]
    edges_y = [round(edge) for edge in np.linspace(frame.bottom, frame.top, len(upward) + 1)]
    boxes: dict[int, list[str]] = {}
    for row, at_y in enumerate(upward):
        levels = [_level(panel, _between(panel["mean"], at_x, at_y), low, high) for at_x in across]
        edges = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(levels)) if a != b), len(levels)]
        for start, end in pairwise(edges):
            if (level := levels[start]) is not None:
                left, right = edges_x[start], edges_x[end]
                box = f"M{left} {edges_y[row]}H{right}V{edges_y[row + 1]}H{left}z"
                boxes.setdefault(level, []).append(box)
    for level, drawn in sorted(boxes.items()):
        faint = 0.06 + 0.86 * level / (LEVELS - 1)
        picture.parts.append(
            f'<path d="{"".join(drawn)}" fill="{SERIES[0]}" fill-opacity="{faint:.2f}" '
            'shape-rendering="crispEdges"/>'
        )


def _fine(grid: Sequence[Any], parameter: Mapping[str, Any]) -> list[float]:
    """Return the places between the points of a grid, as fractional indices, that get a cell."""
    if parameter["scale"] == "category" or len(grid) == 1:
        return [float(index) for index in range(len(grid))]
    count = (len(grid) - 1) * FINE
    return [(index + 0.5) / FINE for index in range(count)]


def _between(mean: Sequence[Sequence[float | None]], x: float, y: float) -> float | None:
    """Return the mean between four points of the grid; None: one of them has none."""
    i, j = int(x), int(y)
    total = 0.0
    for a, share_x in ((i, 1 - (x - i)), (i + 1, x - i)):
        for b, share_y in ((j, 1 - (y - j)), (j + 1, y - j)):
            if share_x * share_y > 0:
                value = mean[a][b]
                if value is None:
                    return None
                total += share_x * share_y * value
    return total


def _level(panel: Mapping[str, Any], value: float | None, low: float, high: float) -> int | None:
    """Return the level of a value: the best is the highest."""
    if value is None or not math.isfinite(value):
        return None
    share = (value - low) / (high - low) if high > low else 0.0
    good = share if panel["goal"] == "maximize" else 1 - share
    return min(LEVELS - 1, int(good * LEVELS))
