"""Pictures that only pages have: a trend, a trial's curve beside its rungs, sweeps side by side."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from hposvc.reporting.history import History
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    GRID,
    MUTED,
    SERIES,
    TICKS,
    Frame,
    Linear,
    LogScale,
    Mark,
    Picture,
    Scale,
    fitted,
    robust,
    stairs,
)
from hposvc.state import summary
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import number

T = TypeVar("T")

WIDE = 760.0  # width of a trial's curve, in pixels
MOST_POINTS = 400  # of a line; of more, every n-th
MOST_OTHERS = 60  # curves of other trials, the best ones
WIDTH, HEIGHT = 96, 24  # of a trend
TREND = "#5b8fd6"  # seen on light and on dark paper: an image knows no theme


def trend(state: SweepState) -> str:
    """Return the best value so far by trial, as a small SVG without axes."""
    losses = [trial.loss for trial in state.trials.values() if math.isfinite(trial.loss)]
    best = _thinned([*accumulate(losses, min)], 90) if not state.spec.several else []
    opened = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">'
    )
    if not best:
        return f"{opened}</svg>"
    sign = 1 if state.spec.objectives[0].goal == "minimize" else -1
    # The first values may be far off: those within the last nine tenths set the scale.
    low, high = best[-1], best[len(best) // 10]
    span = (high - low) or 1.0

    def height(loss: float) -> float:
        share = min(1.0, (loss - low) / span)
        return HEIGHT - 3 - (HEIGHT - 6) * (share if sign > 0 else 1 - share)

    step = (WIDTH - 8) / max(1, len(best) - 1)
    points = stairs([(3 + place * step, height(loss)) for place, loss in enumerate(best)])
    points.append((WIDTH - 4, points[-1][1]))
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    x, y = points[-1]
    return (
        f'{opened}<path d="{path}" fill="none" stroke="{TREND}" stroke-width="1.5"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{TREND}"/></svg>'
    )


def curve(
    state: SweepState, trial: TrialState, decisions: Mapping[int, str], width: float = WIDE
) -> str:
    """Return a trial's curve, with the rungs, the best trial's, and its other seeds' or trials'.

    Args:
        decisions: what was decided about the trial, in words, by step.
        width: of the picture, in pixels.
    """
    metric = state.spec.objectives[0]
    own = _finite(trial.curve)
    if not own:
        return ""
    best = next((state.trials[name] for name in state.front if name != trial.id), None)
    others = sorted(state.trials.values(), key=lambda each: each.loss)[:MOST_OTHERS]
    others = trial.seeds or [each for each in others if each not in (trial, best)]
    behind = [_finite(each.curve) for each in others]
    best_curve = _finite(best.curve) if best is not None else []
    picture = Picture(
        f"{metric.name} of {trial.id}",
        f"{len(own)} reports, the last one {number(own[-1][1])}",
        width,
    )
    frame = picture.frame(top=54)
    steps = [step for step, _ in (*own, *best_curve)]
    last = max([*steps, state.spec.last_step or 1])
    most = min(TICKS, width / 80)
    x = Linear(min([*steps, 1]), last, frame.left, frame.right, int(most))
    seeds = [point for points in behind for point in points] if trial.seeds else []
    values = [value for _, value in (*own, *best_curve, *seeds)]
    y = robust(values, frame.bottom, frame.top, metric.goal)

    def within(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
        """Return points as places in the frame; those beyond its scale lie on its edge."""
        return [_place(frame, x, y, step, value) for step, value in points]

    picture.y_axis(frame, y)
    picture.text(2, 14, fitted(metric.name, width))
    picture.x_axis(frame, x, state.spec.unit)
    for rung in summary.rung_steps(state.spec):
        if x.low <= rung <= x.high:
            words = decisions.get(rung, "")
            ends = [(x(rung), frame.top), (x(rung), frame.bottom)]
            picture.line(ends, MUTED if words else GRID, 1, dashes="3 3", hover=words)
    for points in behind:
        picture.line(_thinned(within(points)), FAINT, 1, 0.45)
    colour = BEST if trial.id in state.front else SERIES[0]
    legend: list[tuple[str, str, Mark]] = [
        (f"{trial.id}, the best" if colour == BEST else trial.id, colour, "line")
    ]
    if best is not None and best_curve:
        picture.line(_thinned(within(best_curve)), BEST, 1.8)
        legend = [(f"{best.id}, the best", BEST, "line"), *legend]
    picture.line(_thinned(within(own)), colour, 2.4)
    for step, value in _thinned(own, 60):
        words = f"{state.spec.unit} {step}: {number(value)}" + (
            f"; {decisions[step]}" if step in decisions else ""
        )
        picture.dot(*within([(step, value)])[0], colour, 3, hover=words, hollow=step in decisions)
    picture.legend(frame, legend)
    return picture.svg()


def side_by_side(histories: Mapping[str, History], against: str) -> str:
    """Return the best value so far of several sweeps in one picture; empty: they have none.

    Args:
        against: `trials` or `cost`.
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, history in histories.items():
        marks = history.improvements
        places = {
            "trials": [float(mark.trials) for mark in marks],
            "cost": [mark.cost for mark in marks],
        }[against]
        points = [
            (place, mark.value)
            for place, mark in zip(places, marks, strict=True)
            if math.isfinite(mark.value)
        ]
        ends = {
            "trials": float(len(history.state.trials)),
            "cost": history.cost(history.rank_s),
        }
        if points:
            lines[name] = [
                *stairs(_thinned(points, MOST_POINTS // 2)),
                (max(ends[against], points[-1][0]), points[-1][1]),
            ]
    if not lines:
        return ""
    first = histories[next(iter(lines))]
    metric = first.spec.objectives[0].name
    words = {"trials": "trials begun", "cost": f"{first.cost_unit} spent"}[against]
    picture = Picture("Best value so far", f"{metric} of {len(lines)} sweeps against {words}")
    frame = picture.frame()
    end = max(place for line in lines.values() for place, _ in line) or 1.0
    most = min(TICKS, end) if against == "trials" else TICKS  # no tick between two trials
    x = Linear(0.0, end, frame.left, frame.right, int(most))
    values = [value for line in lines.values() for _, value in line]
    y = robust(values, frame.bottom, frame.top, first.spec.objectives[0].goal)
    picture.y_axis(frame, y, metric)
    picture.x_axis(frame, x, words)
    colours = dict(zip(histories, SERIES, strict=False))
    for name, line in lines.items():
        inside = [_place(frame, x, y, place, value) for place, value in line]
        picture.line(inside, colours[name], 2.2, hover=name)
    widest = (frame.right - frame.left) / len(lines) - 30
    picture.legend(frame, [(fitted(name, widest, 11), colours[name], "line") for name in lines])
    return picture.svg()


def _place(frame: Frame, x: Scale, y: Scale, at: float, value: float) -> tuple[float, float]:
    """Return a point's place in a frame; one beyond the scale lies on the frame's edge."""
    low = y.low if isinstance(y, LogScale) else -math.inf
    return x(at), min(max(y(max(value, low)), frame.top), frame.bottom)


def _finite(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(step, value) for step, value in points if math.isfinite(value)]


def _thinned(items: Sequence[T], most: int = MOST_POINTS) -> list[T]:
    """Return some of the items, evenly spread, and the last one."""
    every = max(1, math.ceil(len(items) / most))
    thinned = [*items[::every]]
    return thinned if not items or (len(items) - 1) % every == 0 else [*thinned, items[-1]]
