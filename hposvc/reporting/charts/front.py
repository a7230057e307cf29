"""The Pareto front of several metrics, and the volume that it covered over time."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from hposvc.analysis.parameter_effects import best_and_random
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.parameters import value_of
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    INK,
    MUTED,
    SERIES,
    Frame,
    Linear,
    Picture,
    fitted,
    robust,
    stairs,
)
from hposvc.state.trial import TrialState
from hposvc.text import count, number
from searchers import dominates, hypervolume, spread_order

MOST = 1000  # trials beside the front in the data
WITHIN = 0.9  # share of the trials that is no worse than the reference point in a metric
LATE = 0.1  # of the trials, at the end
PLAINLY = 0.01  # gain of volume that counts
LABELS = 4  # trials of the front that are named


def build(history: History) -> Chart | None:
    """Return the chart; None: there is one metric, or no trial is on the front."""
    state = history.state
    if not state.spec.several:
        return None
    trials = [trial for trial in state.trials.values() if math.isfinite(trial.loss)]
    front = set(state.trials.best())
    if not front or not trials:
        return None
    trials.sort(key=lambda trial: (history.readings[trial.id][-1].time, trial.number))
    losses_NK = np.array([trial.losses for trial in trials])
    best_K = losses_NK.min(axis=0)
    reference_K = _reference(losses_NK, [trial.id in front for trial in trials])
    at, volumes = _volumes(losses_NK, best_K, reference_K)
    place = {trial.id: index for index, trial in enumerate(trials)}
    on = [trials[place[name]] for name in front if name in place]
    on.sort(key=lambda trial: trial.losses)
    others = [index for index, trial in enumerate(trials) if trial.id not in front]
    scaled_N = ((losses_NK - best_K) / (reference_K - best_K)).sum(axis=1)
    others.sort(key=lambda index: float(scaled_N[index]))
    shown = [trials[index] for index in best_and_random(others, MOST)]
    metrics = state.spec.objectives
    signs = [metric.loss(1.0) for metric in metrics]
    data = {
        "cost_unit": history.cost_unit,
        "metrics": [
            {
                "metric": metric.name,
                "goal": metric.goal,
                "reference": float(reference_K[k]) * signs[k],
                "front": [value_of(trial, k) for trial in on],
                "others": [value_of(trial, k) for trial in shown],
            }
            for k, metric in enumerate(metrics)
        ],
        "front": [trial.id for trial in on],
        "others": [trial.id for trial in shown],
        "of": len(trials),
        "trials": [index + 1 for index in at],
        "seconds": [_time(history, trials[index]) for index in at],
        "cost": [history.spent.get(trials[index].id) for index in at],
        "volume": volumes,
    }
    return Chart("front", "Pareto front", _message(data), data)


def _time(history: History, trial: TrialState) -> float:
    return max(0.0, history.readings[trial.id][-1].time - history.start)


def _reference(losses_NK: Any, on_front: Sequence[bool]) -> Any:
    """Return the corner of the volume: the worst of the better 90 %, and worse than the front."""
    usual_K = np.quantile(losses_NK, WITHIN, axis=0)
    front_K = losses_NK[np.array(on_front)].max(axis=0)
    low_K = losses_NK.min(axis=0)
    worst_K = np.maximum(usual_K, front_K)
    span_K = np.where(worst_K > low_K, worst_K - low_K, np.maximum(np.abs(low_K), 1.0))
    return worst_K + 0.05 * span_K


def _volumes(losses_NK: Any, best_K: Any, reference_K: Any) -> tuple[list[int], list[float]]:
    """Return after which trials the front grew, and its volume then, as a share of the box.

    The box lies between the best value of each metric and the reference point.
    """
    scaled_NK = (losses_NK - best_K) / (reference_K - best_K)
    front: list[tuple[float, ...]] = []
    at, volumes = [], []
    corner = np.ones(scaled_NK.shape[1])
    for index, row in enumerate(scaled_NK.tolist()):
        point = tuple(row)
        if any(point == other or dominates(other, point) for other in front):
            continue
        front = [other for other in front if not dominates(point, other)] + [point]
        at.append(index)
        volumes.append(hypervolume(front, corner))
    return at, volumes


def _message(data: Mapping[str, Any]) -> str:
    size, of = len(data["front"]), data["of"]
    names = [metric["metric"] for metric in data["metrics"]]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    if size == 1:
        return f"{data['front'][0]} is the best of {count(of, 'trial')} in {listed}: no trade-off."
    text = f"{size} of {count(of, 'trial')} are on the front: none is beaten in all of {listed}"
    late = [
        volume
        for trials, volume in zip(data["trials"], data["volume"], strict=True)
        if trials <= (1 - LATE) * of
    ]
    last = data["volume"][-1]
    if not late or last <= 0:
        return f"{text}."
    gain = (last - late[-1]) / last
    if gain > PLAINLY:
        return f"{text}. The last tenth of the trials still added {gain:.0%} of its volume."
    return f"{text}. The last tenth of the trials added next to nothing to it."


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    metrics = data["metrics"]
    pairs = [*combinations(range(len(metrics)), 2)]
    down = -(-(len(pairs) + 1) // 2)
    picture = Picture("Pareto front", f"{len(data['front'])} trials", height=20 + 300.0 * down)
    half = picture.width / 2
    for place, (k, j) in enumerate(pairs):
        left, top = half * (place % 2), 300.0 * (place // 2)
        frame = Frame(left + 58, top + 48, left + half - 18, top + 252)
        _draw_pair(picture, frame, metrics[k], metrics[j], data, len(metrics) == 2)
    left, top = half * (len(pairs) % 2), 300.0 * (len(pairs) // 2)
    _draw_volume(picture, Frame(left + 58, top + 48, left + half - 18, top + 252), data)
    picture.note(
        "Hypervolume: share of the box between the best value of each metric and one that 90 % of "
        "the trials, and all of the front, beat."
    )
    return picture.svg()


def _draw_pair(
    picture: Picture,
    frame: Frame,
    across: Mapping[str, Any],
    upward: Mapping[str, Any],
    data: Mapping[str, Any],
    joined: bool,
) -> None:
    """Draw two metrics against each other."""
    x = robust([*across["others"], *across["front"]], frame.left, frame.right, across["goal"])
    y = robust([*upward["others"], *upward["front"]], frame.bottom, frame.top, upward["goal"])
    x = Linear(x.low, x.high, x.start, x.end, 4) if isinstance(x, Linear) else x
    title = fitted(f"{upward['metric']}, {upward['goal']}d", frame.right - frame.left)
    for tick in y.ticks:
        picture.line([(frame.left, tick.at), (frame.right, tick.at)], "var(--grid,#e3e7ec)", 1)
        picture.text(frame.left - 8, tick.at + 4, fitted(tick.label, 50, 11), MUTED, "end", 11)
    picture.text(frame.left - 56, frame.top - 22, title)
    picture.x_axis(frame, x, fitted(f"{across['metric']}, {across['goal']}d", 280))
    with picture.clipped(frame):
        others = [
            (x(a), y(b))
            for a, b in zip(across["others"], upward["others"], strict=True)
            if _fits(x, a) and _fits(y, b)
        ]
        picture.dots(others, FAINT, 4)
        rows = [
            (x(a), y(b), name)
            for a, b, name in zip(across["front"], upward["front"], data["front"], strict=True)
            if _fits(x, a) and _fits(y, b)
        ]
        if joined:
            picture.line(steps(sorted((a, b) for a, b, _ in rows), upward), BEST, 1.4, 0.7)
        for a, b, name in rows:
            picture.dot(a, b, BEST, 3.6, hover=name)
    named = [rows[i] for i in spread_order([(a, b) for a, b, _ in rows])[:LABELS]] if rows else []
    taken: list[tuple[float, float]] = []
    for a, b, name in named:
        left = a > (frame.left + frame.right) / 2
        at = (a - 7 if left else a + 7, b - 7)
        if all(abs(at[0] - p) > 50 or abs(at[1] - q) > 14 for p, q in taken):
            picture.text(*at, name, INK, "end" if left else "start", 11)
            taken.append(at)


def _fits(scale: Any, value: float) -> bool:
    return isinstance(scale, Linear) or value > 0


def steps(
    points: list[tuple[float, float]], upward: Mapping[str, Any]
) -> list[tuple[float, float]]:
    """Return the corners of the region that the front dominates."""
    if len(points) < 2:
        return points
    # The corner between two points is where both metrics have the worse of their values.
    worse = max if upward["goal"] == "maximize" else min
    corners = [points[0]]
    for (a, b), (c, d) in pairwise(points):
        low = worse(b, d)
        corners += [(a if low == d else c, low), (c, d)]
    return corners


def _draw_volume(picture: Picture, frame: Frame, data: Mapping[str, Any]) -> None:
    x = Linear(0.0, float(data["of"]), frame.left, frame.right, 4)
    y = Linear.around([0.0, *data["volume"]], frame.bottom, frame.top)
    for tick in y.ticks:
        picture.line([(frame.left, tick.at), (frame.right, tick.at)], "var(--grid,#e3e7ec)", 1)
        picture.text(frame.left - 8, tick.at + 4, tick.label, MUTED, "end", 11)
    picture.text(frame.left - 56, frame.top - 22, "hypervolume")
    picture.x_axis(frame, x, "trials with a result")
    points = [(x(at), y(v)) for at, v in zip(data["trials"], data["volume"], strict=True)]
    picture.line([*stairs(points), (frame.right, points[-1][1])], SERIES[0], 2.4)
    picture.text(
        frame.right,
        points[-1][1] - 8,
        number(float(f"{data['volume'][-1]:.3g}")),
        SERIES[0],
        "end",
        bold=True,
    )
