"""Shares of a total: three of them as points of a triangle, more as bars.

A point of the triangle lies the nearer to a corner, the larger that share is. A bar is the best
trial's share; beside it are the range of the leading trials and the mean of all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hposvc.analysis.parameter_effects import best_and_random
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.svg import (
    BEST,
    FAINT,
    GRID,
    INK,
    MUTED,
    SERIES,
    Frame,
    Linear,
    Picture,
    fitted,
)
from hposvc.state.trial import TrialState
from hposvc.text import count, number
from searchers import Shares

MOST = 400  # trials in a triangle
LEADING = 0.1  # of the trials
FEW = 5  # leading trials at least
NAMED = 3  # shares in the sentence
BARS = 30  # shares drawn as bars
ROW = 22.0  # pixels
SIDE = 300.0  # pixels of a triangle
HIGH = 3**0.5 / 2  # of a triangle with sides of 1
LINES = (0.25, 0.5, 0.75)


def build(history: History) -> Chart | None:
    """Return the chart; None: nothing is shared out, or no trial has a result."""
    state = history.state
    groups = state.spec.space.shares
    trials = [trial for trial in state.trials.values() if trial.values]
    if not groups or not trials:
        return None
    front = [name for name in state.trials.best() if state.trials[name].values]
    trials.sort(key=lambda trial: (trial.id not in front, trial.losses, trial.number))
    data: dict[str, Any] = {
        "metrics": [metric.name for metric in state.spec.objectives],
        "groups": [found for shares in groups if (found := _group(shares, trials, len(front)))],
    }
    if not data["groups"]:
        return None
    best = _best(data["metrics"])
    return Chart(
        "shares", "Shares", " ".join(_message(each, best) for each in data["groups"]), data
    )


def _group(shares: Shares, trials: Sequence[TrialState], front: int) -> dict[str, Any] | None:
    """Return the shares of trials, which come best first."""
    having = [trial for trial in trials if shares.members[0] in trial.params]
    if not having:
        return None
    leading = max(front, FEW, round(LEADING * len(having)))
    rows = [[float(trial.params[name]) for name in shares.members] for trial in having]  # type: ignore[arg-type]
    shown = best_and_random(range(len(having)), MOST)
    columns = [*zip(*rows, strict=True)]
    return {
        "name": shares.declared,
        "shares": [*shares.names],
        "total": shares.total,
        "of": len(having),
        "best": having[0].id,
        "best_shares": rows[0],
        "leading": min(leading, len(having)),
        "low": [min(column[:leading]) for column in columns],
        "high": [max(column[:leading]) for column in columns],
        "mean": [sum(column) / len(column) for column in columns],
        "trial": [having[index].id for index in shown],
        "value": [[number(value) for value in having[index].values] for index in shown],
        "share": [rows[index] for index in shown],
        "leads": [index < leading for index in shown],
    }


def _part(group: Mapping[str, Any], amount: float) -> str:
    """Return an amount as people write it: in percent if the total is 1."""
    return f"{amount:.0%}" if group["total"] == 1 else number(amount)


def _best(metrics: Sequence[str]) -> str:
    """Return by what a trial is the best, in words."""
    return "the best trial" if len(metrics) == 1 else f"the best in {metrics[0]}"


def _message(group: Mapping[str, Any], best: str) -> str:
    order = sorted(range(len(group["shares"])), key=lambda k: -group["best_shares"][k])
    named = [f"{_part(group, group['best_shares'][k])} {group['shares'][k]}" for k in order[:NAMED]]
    *others, last = named
    zeros = sum(share == 0 for share in group["best_shares"])
    text = f"{best.capitalize()}, {group['best']}, has "
    text += f"{', '.join(others)} and {last} of {group['name']}"
    if zeros:
        text += f"; {zeros} of its {count(len(order), 'share')} {'is' if zeros == 1 else 'are'} 0"
    first = order[0]
    ends = " to ".join(dict.fromkeys(_part(group, group[end][first]) for end in ("low", "high")))
    most = group["shares"][first]
    return f"{text}. In the {group['leading']} best of {group['of']} {most} is {ends}."


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    heights = [_height(group) for group in data["groups"]]
    names = ", ".join(group["name"] for group in data["groups"])
    picture = Picture("Shares", f"shares of {names}", height=sum(heights) + 24)
    top = 0.0
    for group, height in zip(data["groups"], heights, strict=True):
        if len(group["shares"]) == NAMED:
            _draw_triangle(picture, group, top)
        else:
            _draw_bars(picture, group, top, _best(data["metrics"]))
        top += height
    picture.note("Leading: the best tenth of the trials, 5 at least, or the Pareto front.")
    return picture.svg()


def _height(group: Mapping[str, Any]) -> float:
    if len(group["shares"]) == NAMED:
        return HIGH * SIDE + 92
    return 84 + ROW * min(BARS, len(group["shares"]))


def _draw_triangle(picture: Picture, group: Mapping[str, Any], top: float) -> None:
    left, base = (picture.width - SIDE) / 2, top + 50 + HIGH * SIDE

    def at(parts: Sequence[float]) -> tuple[float, float]:
        """Return the place of three shares: left corner, right corner, top."""
        _, right, upper = (part / group["total"] for part in parts)
        return left + SIDE * (right + upper / 2), base - SIDE * HIGH * upper

    picture.text(2, top + 16, f"{group['name']}: {count(group['of'], 'trial')}")
    picture.legend(
        Frame(0, top + 30, picture.width - 18, 0),
        [("best", BEST, "dot"), ("leading", SERIES[0], "dot"), ("others", FAINT, "dot")],
    )
    total = group["total"]
    for line in LINES:
        some, rest = line * total, (1 - line) * total
        for ends in (
            ((some, rest, 0), (some, 0, rest)),
            ((rest, some, 0), (0, some, rest)),
            ((rest, 0, some), (0, rest, some)),
        ):
            picture.line([at(end) for end in ends], GRID, 1)
        # Each share is written where its line meets the edge towards the next corner.
        for place, side, across, down in (
            ((some, rest, 0), "middle", 0.0, 14.0),
            ((0, some, rest), "start", 6.0, 4.0),
            ((rest, 0, some), "end", -6.0, 4.0),
        ):
            x, y = at(place)
            picture.text(x + across, y + down, _part(group, some), MUTED, side, 10)  # type: ignore[arg-type]
    corners = ((total, 0, 0), (0, total, 0), (0, 0, total))
    picture.line([at(corner) for corner in (*corners, corners[0])], MUTED, 1.4)
    anchors = (("end", -8, 14), ("start", 8, 14), ("middle", 0, -8))
    for name, corner, (anchor, across, down) in zip(group["shares"], corners, anchors, strict=True):
        x, y = at(corner)
        picture.text(x + across, y + down, fitted(name, 150), INK, anchor)  # type: ignore[arg-type]
    rows = [*zip(group["share"], group["leads"], group["trial"], group["value"], strict=True)]
    for share, leads, trial, value in sorted(rows, key=lambda row: row[1]):
        x, y = at(share)
        words = f"{trial}: {', '.join(value)}"
        picture.dot(x, y, SERIES[0] if leads else FAINT, 3.4 if leads else 2.6, hover=words)
    picture.dot(*at(group["best_shares"]), BEST, 5.0, hover=group["best"])


def _draw_bars(picture: Picture, group: Mapping[str, Any], top: float, best: str) -> None:
    order = sorted(range(len(group["shares"])), key=lambda k: -group["best_shares"][k])[:BARS]
    frame = Frame(190, top + 44, picture.width - 60, top + 44 + ROW * len(order))
    most = max(*group["best_shares"], *group["high"], *group["mean"])
    x = Linear(0.0, most, frame.left, frame.right, 4, lambda part: _part(group, part))
    picture.text(2, top + 16, f"{group['name']} of {group['best']}, {best}")
    picture.x_axis(frame, x, grid=True)
    picture.legend(
        Frame(0, frame.top - 6, picture.width - 18, 0),
        [("best", BEST, "box"), ("leading", SERIES[0], "line"), ("mean of all", MUTED, "ring")],
    )
    for row, k in enumerate(order):
        y, name, share = frame.top + ROW * row, group["shares"][k], group["best_shares"][k]
        low, high, mean = (group[key][k] for key in ("low", "high", "mean"))
        ends = f"leading {_part(group, low)} to {_part(group, high)}"
        words = f"{name}: {_part(group, share)}; {ends}; mean of all {_part(group, mean)}"
        picture.text(frame.left - 8, y + 15, fitted(name, 170), INK, "end", hover=words)
        picture.box(frame.left, y + 4, x(share) - frame.left, 13, BEST, 0.75, hover=words)
        picture.line([(x(low), y + 10.5), (x(high), y + 10.5)], SERIES[0], 2.4, hover=words)
        picture.dot(x(mean), y + 10.5, MUTED, 3.0, hover=words, hollow=True)
        picture.text(
            max(map(x, (share, high, mean))) + 8, y + 15, _part(group, share), MUTED, size=11
        )
