"""Learning curves, the rungs at which trials were compared, and who was cut there."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from hposvc.analysis.audit.trial_audit import PAST_TENSE, SOLO_REASONS
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.svg import (
    BAD,
    BEST,
    FAINT,
    INK,
    MUTED,
    PAPER,
    SERIES,
    WIDTH,
    Frame,
    Linear,
    LogScale,
    Picture,
    Scale,
    ScaleOf,
    fitted,
    robust,
    text_width,
    whole,
)
from hposvc.state.trial import TrialState
from hposvc.text import count, number

BASELINE = SERIES[2]
MOST_RUNGS = 12  # a scheduler that compares trials at more steps has no rungs
MOST_CURVES = 1000  # in the data; of more trials, the best half and an even sample of the others
MOST_LINES = 200  # in the picture; of more trials, bands and the best ones
BEST_LINES = 20
MOST_DECISIONS = 6  # of a trial, the last ones
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def build(history: History) -> Chart | None:
    """Return the chart; None: no trial has reported two steps, so there are no curves."""
    state = history.state
    trials = [trial for trial in state.trials.values() if trial.curve]
    if not any(len(trial.curve) > 1 for trial in trials):
        return None
    spec, metric = state.spec, state.spec.objectives[0]
    ranked = [trial for trial in state.ranked() if trial.curve]
    best = min(state.front, key=lambda name: state.trials[name].losses, default=None)
    rungs = _rungs(history)
    cuts = [_cut(history, trials, step) for step in rungs]
    return Chart(
        "curves",
        "Learning curves and cuts",
        _message(history, trials, cuts),
        {
            "metric": metric.name,
            "goal": metric.goal,
            "unit": spec.unit,
            "scheduler": spec.scheduler.name,
            "best": best,
            "baseline": state.replicates.baseline_trial,
            "of": len(trials),
            "rungs": rungs,
            "cuts": cuts,
            "bands": _bands(trials) if len(trials) > MOST_LINES else None,
            "trials": [_row(history, trial) for trial in _sample(ranked)],
        },
    )


def _sample(ranked: Sequence[TrialState]) -> list[TrialState]:
    if len(ranked) <= MOST_CURVES:
        return list(ranked)
    half = MOST_CURVES // 2
    others = ranked[half:]
    return [*ranked[:half], *others[:: math.ceil(len(others) / half)]]


def _row(history: History, trial: TrialState) -> dict[str, Any]:
    decisions = history.decisions.get(trial.id, [])[-MOST_DECISIONS:]
    return {
        "trial": trial.id,
        "state": trial.state,
        "reason": trial.end_reason[0],
        "step": [step for step, _ in trial.curve],
        "value": [value for _, value in trial.curve],
        "decisions": [
            [decision.step, decision.verdict, decision.reason, decision.detail]
            for decision in decisions
        ],
    }


def _rungs(history: History) -> list[int]:
    """Return the steps at which the scheduler compared trials; empty if they are many."""
    steps = {
        decision.step
        for decisions in history.decisions.values()
        for decision in decisions
        if decision.reason not in SOLO_REASONS and decision.verdict != "park"
    }
    last = history.state.spec.last_step
    steps -= {0, last}
    return sorted(steps) if len(steps) <= MOST_RUNGS else []


def _cut(history: History, trials: Sequence[TrialState], step: int) -> dict[str, Any]:
    """Return who came to a rung and who went on, and where the cut lies now that all is known."""
    metrics = history.state.spec.objectives
    arrived = [trial for trial in trials if step in trial.steps]
    on = [trial for trial in arrived if trial.step > step]
    here = [trial for trial in arrived if trial.step == step]
    stopped = [
        trial for trial in here if trial.state == "STOPPED" and trial.reason not in SOLO_REASONS
    ]
    losses = sorted(
        metrics[0].loss(trial.steps[step]) for trial in arrived if math.isfinite(trial.steps[step])
    )
    ranks = len(metrics) == 1 and stopped and 0 < len(on) <= len(losses)
    limit = losses[len(on) - 1] if ranks else None
    unlucky = [
        trial.id
        for trial in stopped
        if limit is not None and metrics[0].loss(trial.steps[step]) < limit
    ]
    return {
        "step": step,
        "arrived": len(arrived),
        "continued": len(on),
        "stopped": len(stopped),
        "waiting": sum(trial.state == "PAUSED" for trial in here),
        "cut": None if limit is None else metrics[0].loss(limit),
        "unlucky": unlucky[:20],
        "unlucky_count": len(unlucky),
    }


def _bands(trials: Sequence[TrialState]) -> dict[str, list[Any]]:
    """Return quantiles of the trials that reported each step."""
    points = sorted(
        (step, value) for trial in trials for step, value in trial.curve if math.isfinite(value)
    )
    columns: dict[str, list[Any]] = {"step": [], "count": []}
    columns |= {f"q{100 * share:.0f}": [] for share in QUANTILES}
    for step, group in groupby(points, key=lambda point: point[0]):
        values = [value for _, value in group]
        columns["step"].append(step)
        columns["count"].append(len(values))
        for share in QUANTILES:
            columns[f"q{100 * share:.0f}"].append(values[round(share * (len(values) - 1))])
    return columns


def _message(
    history: History, trials: Sequence[TrialState], cuts: Sequence[Mapping[str, Any]]
) -> str:
    """Return how many trials were stopped, and whether the cuts were right as far as is known."""
    spec = history.state.spec
    ended = sum(trial.state == "COMPLETED" for trial in trials)
    stopped = [cut for cut in cuts if cut["stopped"]]
    if not stopped:
        early = sum(trial.state == "STOPPED" for trial in trials)
        first = ", each drawn by its first seed" if history.state.replicates.seeded else ""
        came = f"{ended} of {count(len(trials), 'trial')} came to the end{first}"
        return f"{came}; {early} {'was' if early == 1 else 'were'} stopped before."
    where = ", ".join(f"{cut['stopped']:,} at {cut['step']}" for cut in stopped[:5])
    text = f"Of {count(len(trials), 'trial')} {ended} came to the end"
    text += f"; stopped by {spec.unit}: {where}."
    unlucky = sum(cut["unlucky_count"] for cut in cuts)
    if spec.several:
        return text
    if unlucky:
        were = f"{unlucky} {'was' if unlucky == 1 else 'were'}"
        return (
            f"{text} Of these {were} better at the cut than a trial that went on: trials are "
            "compared with the rivals of the moment, not with all."
        )
    return f"{text} None of these was better at its cut than a trial that went on."


def views(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the chart as SVG: bands where trials are many, trials, and trials with all values."""
    each = {**data, "bands": None}
    bands = {} if data["bands"] is None else {"Bands": draw(data)}
    return {**bands, "Trials": draw(each), "All values": draw(each, scale=whole)}


def draw(data: Mapping[str, Any], width: float = WIDTH, scale: ScaleOf = robust) -> str:
    """Return the chart as SVG; a narrow one has room above it for more lines of a legend."""
    words = f"{data['metric']} by {data['unit']}"
    picture = Picture("Learning curves and cuts", words, width)
    top = 62 if width >= WIDTH else 110
    frame = picture.frame(top=top, bottom=62 if data["bands"] else 44)
    x = _steps_scale(data, frame)
    rows = data["trials"]
    drawn = rows
    if data["bands"] is not None:
        others = [row for row in rows[BEST_LINES:] if row["trial"] == data["baseline"]]
        drawn = [*rows[:BEST_LINES], *others]
    y = _values_scale(drawn, data, frame, scale)
    picture.y_axis(frame, y)
    picture.text(2, 20, fitted(f"{data['metric']}, {data['goal']}d", max(300, width / 3)))
    picture.x_axis(frame, x, data["unit"])
    _draw_rungs(picture, frame, x, data)
    with picture.clipped(frame):
        if data["bands"] is not None:
            _draw_bands(picture, x, y, data["bands"])
        # The better of two trials lies above the other.
        upward = reversed(drawn)
        for row in sorted(upward, key=lambda row: _layer(row, data["best"], data["baseline"])):
            _draw_curve(picture, x, y, row, data)
        _draw_cuts(picture, x, y, data)
    _draw_legend(picture, frame, data)
    if data["bands"] is not None:
        picture.note(
            f"{data['of']:,} trials: bands hold the middle 50 % and 80 % of those that reached a "
            f"step; lines are the best {min(BEST_LINES, len(rows))}."
        )
    return picture.svg()


def _steps_scale(data: Mapping[str, Any], frame: Frame) -> Scale:
    """Return the scale of steps: logarithmic between rungs that are."""
    first = min(row["step"][0] for row in data["trials"])
    last = max(row["step"][-1] for row in data["trials"])
    rungs = data["rungs"]
    if len(rungs) > 1 and first > 0 and rungs[-1] / rungs[0] >= 4 and last / first >= 9:
        return LogScale(first / 1.15, last, frame.left, frame.right, tuple({*rungs, last}))
    return Linear(min(first, last - 1), last, frame.left, frame.right)


def _values_scale(
    drawn: Sequence[Mapping[str, Any]], data: Mapping[str, Any], frame: Frame, scale: ScaleOf
) -> Scale:
    """Return a scale for the curves in the picture, and for the bands."""
    values = [value for row in drawn for value in row["value"] if value is not None]
    bands = data["bands"]
    if bands is not None and data["goal"] == "maximize":
        return Linear.around([*values, *bands["q10"], *bands["q90"]], frame.bottom, frame.top)
    values += [] if bands is None else [*bands["q10"], *bands["q90"]]
    return scale(values, frame.bottom, frame.top, data["goal"])


def _layer(row: Mapping[str, Any], best: str | None, baseline: str | None) -> int:
    """Return the order of painting: the best trial lies above all others, then the baseline."""
    return (
        3
        if row["trial"] == best
        else 2
        if row["trial"] == baseline
        else 1
        if row["state"] == "COMPLETED"
        else 0
    )


def _draw_rungs(picture: Picture, frame: Frame, x: Scale, data: Mapping[str, Any]) -> None:
    """Draw a line at each rung, and above it how many trials came and went on."""
    right = -math.inf
    for cut in data["cuts"]:
        at = x(cut["step"])
        picture.line([(at, frame.top - 4), (at, frame.bottom)], MUTED, 1, 0.7, "3 3")
        label = f"{cut['arrived']:,} → {cut['continued']:,}"
        left = max(2.0, at - text_width(label, 11) / 2)
        if left > right + 6:
            picture.text(left, frame.top - 9, label, MUTED, size=11, hover=_cut_words(cut, data))
            right = left + text_width(label, 11)


def _draw_cuts(picture: Picture, x: Scale, y: Scale, data: Mapping[str, Any]) -> None:
    """Draw the level of each rung's cut: trials on its good side went on."""
    for cut in data["cuts"]:
        if cut["cut"] is not None:
            at, level = x(cut["step"]), y(cut["cut"])
            words = f"{_cut_words(cut, data)}; the last that went on had {number(cut['cut'])}"
            picture.line([(at - 13, level), (at + 13, level)], PAPER, 5)
            picture.line([(at - 12, level), (at + 12, level)], INK, 2.4, hover=words)


def _cut_words(cut: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    return f"{data['unit']} {cut['step']}: {cut['arrived']} came, {cut['continued']} went on"


def _draw_bands(picture: Picture, x: Scale, y: Scale, bands: Mapping[str, Any]) -> None:
    places = [x(step) for step in bands["step"]]
    for low, high, opacity in (("q10", "q90", 0.14), ("q25", "q75", 0.2)):
        upper = list(zip(places, map(y, bands[high]), strict=True))
        lower = list(zip(places, map(y, bands[low]), strict=True))
        picture.area([*upper, *reversed(lower)], SERIES[0], opacity)
    picture.line(list(zip(places, map(y, bands["q50"]), strict=True)), SERIES[0], 1.6, 0.9)


def _draw_curve(
    picture: Picture, x: Scale, y: Scale, row: Mapping[str, Any], data: Mapping[str, Any]
) -> None:
    """Draw a curve and the mark at its end; a hole in a curve is a value that is not finite."""
    best, baseline = row["trial"] == data["best"], row["trial"] == data["baseline"]
    completed = row["state"] == "COMPLETED"
    colour = BEST if best else BASELINE if baseline else SERIES[0] if completed else FAINT
    width, opacity = (
        (2.6, 1.0) if best else (2.0, 1.0) if baseline else (1.3, 0.65) if completed else (1.1, 0.8)
    )
    part: list[tuple[float, float]] = []
    pieces = []
    for step, value in zip(row["step"], row["value"], strict=True):
        if value is None or not math.isfinite(value) or (isinstance(y, LogScale) and value <= 0):
            pieces.append(part)
            part = []
        else:
            part.append((x(step), y(value)))
    pieces = [piece for piece in [*pieces, part] if piece]
    if not pieces:
        return
    at, level = pieces[-1][-1]
    with picture.mark_of(row["trial"], _words(row, data)):
        for piece in pieces:
            if len(piece) > 1:
                picture.line(piece, colour, width, opacity)
        _draw_end(picture, at, level, row, best)
    if best:
        name = f"{row['trial']}, baseline" if baseline else row["trial"]
        picture.text(at - 4, level - 9, name, BEST, "end", bold=True)


def _draw_end(
    picture: Picture, at: float, level: float, row: Mapping[str, Any], best: bool
) -> None:
    """Draw how a trial ended."""
    if _is_lost(row):
        picture.cross(at, level, BAD)
    elif row["state"] == "STOPPED":
        picture.dot(at, level, MUTED, 2.6, hollow=True)
    elif row["state"] == "PAUSED":
        picture.box(at - 2.5, level - 2.5, 5, 5, SERIES[3])
    elif best:
        picture.dot(at, level, BEST, 4)


def _is_lost(row: Mapping[str, Any]) -> bool:
    """Return whether a trial's values count for nothing."""
    return row["state"] == "FAILED" or row["reason"] in ("diverged", "excluded")


def _words(row: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return a trial's end and its last decision, in words."""
    value = next((value for value in reversed(row["value"]) if value is not None), None)
    shown = "no finite value" if value is None else number(value)
    name = f"{row['trial']}, baseline" if row["trial"] == data["baseline"] else row["trial"]
    name += ", excluded" if row["reason"] == "excluded" else ""
    text = f"{name}, {row['state'].lower()} at {data['unit']} {row['step'][-1]}: {shown}"
    if row["decisions"]:
        step, verdict, reason, detail = row["decisions"][-1]
        who = f"({reason})" if reason in SOLO_REASONS else f"by {data['scheduler']}"
        text += f"\n{PAST_TENSE.get(verdict, verdict)} {who} at {data['unit']} {step}"
        text += f": {detail}" if detail else ""
    return text


def _draw_legend(picture: Picture, frame: Frame, data: Mapping[str, Any]) -> None:
    """Write what the marks mean that are in the picture."""
    rows = data["trials"]
    states = {row["state"] for row in rows}
    lost = any(map(_is_lost, rows))
    legend = Frame(frame.left, frame.top - 24, frame.right, frame.bottom)
    entries: list[Any] = []
    if data["best"]:
        entries.append(("best", BEST, "line"))
    names = {row["trial"] for row in rows} - {data["best"]}
    if data["baseline"] in names:
        entries.append(("baseline", BASELINE, "line"))
    if "COMPLETED" in states:
        entries.append(("completed", SERIES[0], "line"))
    if data["bands"] is None:
        entries += [("stopped", MUTED, "ring")] if "STOPPED" in states else []
        entries += [("waits", SERIES[3], "box")] if "PAUSED" in states else []
        entries += [("failed", BAD, "cross")] if lost else []
    if any(cut["cut"] is not None for cut in data["cuts"]):
        entries.append(("cut: better went on", INK, "line"))
    picture.legend(legend, entries)
