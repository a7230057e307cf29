"""The slots of a sweep over time: which order each had, how many worked, what idle ones awaited."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History, SlotSpan
from hposvc.reporting.svg import (
    BAD,
    BEST,
    FAINT,
    GOOD,
    GRID,
    MUTED,
    ON_BEST,
    SERIES,
    Frame,
    Linear,
    Picture,
    Scale,
    stairs,
    time_unit,
)
from hposvc.text import cost_text, count, duration

MOST_BARS = 3000  # drawn one by one; of more, the share of the time that slots had work
MOST_ROWS = 40  # lanes drawn, or groups of them
BINS = 160  # of the time
Idle = defaultdict[str, float]  # seconds that slots had no order, by what they awaited
IDLE = {
    "start": "before a slot's first order",
    "driver": "no driver was at work",
    "retry": "waiting to try again after a failure",
    "searcher": "waiting for a configuration",
    "rung": "waiting for other trials at a rung",
    "between": "between two orders",
    "tail": "nothing left to start",
    "unused": "slots never used",
}


def build(history: History) -> Chart | None:
    """Return the chart; None: no order was given."""
    spans, state = list(history.spans.values()), history.state
    start, end = history.start, max([state.now, *(span.start for span in history.spans.values())])
    if not spans or end <= start:
        return None
    parallel = state.spec.trials.parallel
    lanes = max(history.lanes, parallel if isinstance(parallel, int) else 1)
    capacity = (end - start) * lanes
    busy = _busy(spans, start, end, lanes)
    idle = _idle(history, start, end, lanes)
    worked = sum(_end(span, end) - span.start for span in spans)
    bars = spans if len(spans) <= MOST_BARS else []
    data = {
        "lanes": lanes,
        "seconds": end - start,
        "cost_unit": history.cost_unit,
        "cost": history.cost(history.rank_s),
        "utilisation": worked / capacity,
        "best": state.best,
        "busy": {"seconds": [(end - start) * place / BINS for place in range(BINS)], "share": busy},
        "idle": [
            {"why": why, "meaning": IDLE[why], "slot_seconds": seconds, "share": seconds / capacity}
            for why, seconds in sorted(idle.items(), key=lambda item: -item[1])
            if seconds / capacity >= 0.0005
        ],
        "undriven": [[max(0.0, a - start), b - start] for a, b in history.undriven],
        "orders": len(spans),
        "bars": {
            "order": [span.order for span in bars],
            "trial": [_name(history, span) for span in bars],
            "lane": [span.lane for span in bars],
            "start": [span.start - start for span in bars],
            "end": [_end(span, end) - start for span in bars],
            "workers": [span.workers for span in bars],
            "how": [span.how or "running" for span in bars],
            "device": [span.device for span in bars],
            "node": [span.node for span in bars],
            "baseline": [_is_baseline(history, span) for span in bars],
        },
        "density": None if bars else _density(spans, start, end, lanes),
    }
    return Chart("timeline", "Slots over time", _message(data), data)


def _is_baseline(history: History, span: SlotSpan) -> bool:
    """Return whether an order is of the baseline: of its trial, or of one of its replicates."""
    replicates = history.state.replicates
    if span.replicate:
        return replicates.is_baseline(span.trial, span.replicate)
    return span.trial == replicates.baseline_trial


def _name(history: History, span: SlotSpan) -> str:
    replicates = history.state.replicates
    return replicates.name(span.trial, span.replicate) if span.replicate else span.trial


def _end(span: SlotSpan, now: float) -> float:
    return now if span.end is None else span.end


def _shares(
    spans: list[SlotSpan], start: float, end: float, bins: int
) -> Iterator[tuple[SlotSpan, int, float]]:
    """Yield the share of each bin of the time that each order fills."""
    width = (end - start) / bins
    for span in spans:
        first, last = (span.start - start) / width, (_end(span, end) - start) / width
        for place in range(int(first), min(bins - 1, int(last)) + 1):
            yield span, place, max(0.0, min(last, place + 1) - max(first, place))


def _busy(spans: list[SlotSpan], start: float, end: float, lanes: int) -> list[float]:
    """Return the share of the slots at work in each bin of the time."""
    busy = [0.0] * BINS
    for _, place, share in _shares(spans, start, end, BINS):
        busy[place] += share / lanes
    return [min(1.0, share) for share in busy]


def _density(spans: list[SlotSpan], start: float, end: float, lanes: int) -> list[list[float]]:
    """Return the share of each bin that the lanes of each row had work."""
    per_row = -(-lanes // MOST_ROWS)
    rows = [[0.0] * BINS for _ in range(-(-lanes // per_row))]
    for span, place, share in _shares(spans, start, end, BINS):
        rows[span.lane // per_row][place] += share / per_row
    return rows


def _idle(history: History, start: float, end: float, lanes: int) -> Idle:
    """Return the seconds that slots had no order, by what they awaited."""
    by_lane: dict[int, list[SlotSpan]] = defaultdict(list)
    for span in history.spans.values():
        by_lane[span.lane].append(span)
    seconds: Idle = defaultdict(float)
    for lane in range(lanes):
        free = start
        for span in by_lane[lane]:
            reason = _reason(history, span) if span is not by_lane[lane][0] else "start"
            _add_gap(seconds, history, free, span.start, reason)
            free = _end(span, end)
        _add_gap(seconds, history, free, end, "tail" if by_lane[lane] else "unused")
    return seconds


def _reason(history: History, span: SlotSpan) -> str:
    """Return what a slot awaited before an order that is not its first."""
    if span.again:
        return "retry"
    if span.first > 1:
        return "rung"
    return "searcher" if span.trial in history.waits else "between"


def _add_gap(seconds: Idle, history: History, start: float, end: float, reason: str) -> None:
    """Count a gap: the part without a driver apart."""
    undriven = sum(max(0.0, min(end, b) - max(start, a)) for a, b in history.undriven)
    seconds["driver"] += undriven
    seconds[reason] += max(0.0, end - start - undriven)


def _message(data: Mapping[str, Any]) -> str:
    share = f"{data['utilisation']:.0%}"
    text = (
        f"{count(data['lanes'], 'slot')} had work for {share} of {duration(data['seconds'])}, "
        f"{cost_text(data['cost'], data['cost_unit'])} in all"
    )
    idle = [row for row in data["idle"] if row["share"] >= 0.01]
    if not idle:
        return f"{text}; they were hardly ever idle."
    reasons = ", ".join(f"{row['meaning']} ({row['share']:.0%})" for row in idle[:2])
    return f"{text}; idle time: {reasons}."


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    lanes, density = data["lanes"], data["density"]
    rows = len(density) if density else min(lanes, MOST_ROWS)
    height = max(4.0, min(18.0, 260 / rows))
    picture = Picture(
        "Slots over time",
        f"orders in {count(lanes, 'slot')}, and the share at work",
        height=38 + 62 + 26 + rows * height + 44,
    )
    size, unit = time_unit(data["seconds"])
    usage = Frame(58, 38, picture.width - 18, 100)
    frame = Frame(58, 126, picture.width - 18, 126 + rows * height)
    x = Linear(0.0, data["seconds"] / size, frame.left, frame.right)
    _draw_undriven(picture, x, usage.top, frame.bottom, data, size)
    _draw_usage(picture, x, usage, data, size)
    slots = "slots" if not density or rows == lanes else f"slots, {-(-lanes // rows)} in a row"
    picture.text(2, frame.top - 8, slots)
    for place in (0, rows - 1) if rows > 1 else (0,):
        label = 1 if place == 0 else lanes
        middle = frame.top + height * (place + 0.5) + 4
        picture.text(frame.left - 8, middle, str(label), MUTED, "end", size=11)
    if density:
        _draw_density(picture, frame, height, density)
    else:
        _draw_bars(picture, x, frame, height, data, size)
    picture.x_axis(frame, x, f"{unit} since the start")
    return picture.svg()


def _draw_undriven(
    picture: Picture, x: Scale, top: float, bottom: float, data: Mapping[str, Any], size: float
) -> None:
    for start, end in data["undriven"]:
        left, right = x(start / size), x(end / size)
        words = f"no driver for {duration(end - start)}"
        picture.box(left, top, right - left, bottom - top, GRID, 0.9, hover=words)
        if right - left > 60:
            picture.text((left + right) / 2, top + 12, "no driver", MUTED, "middle", size=11)


def _draw_usage(
    picture: Picture, x: Scale, frame: Frame, data: Mapping[str, Any], size: float
) -> None:
    """Draw the share of slots at work."""
    y = Linear(0.0, 1.0, frame.bottom, frame.top)
    picture.text(2, 20, f"slots at work, {data['utilisation']:.0%} on the whole")
    for share, label in ((0.0, "0"), (1.0, "100 %")):
        picture.line([(frame.left, y(share)), (frame.right, y(share))], GRID, 1)
        picture.text(frame.left - 8, y(share) + 4, label, MUTED, "end", size=11)
    points = [
        (x(at / size), y(share))
        for at, share in zip(data["busy"]["seconds"], data["busy"]["share"], strict=True)
    ]
    corners = [*stairs(points), (frame.right, points[-1][1])]
    base = [(frame.right, frame.bottom), (frame.left, frame.bottom)]
    picture.area([*corners, *base], SERIES[0], 0.22)
    picture.line(corners, SERIES[0], 1.2)


def _draw_bars(
    picture: Picture, x: Scale, frame: Frame, height: float, data: Mapping[str, Any], size: float
) -> None:
    bars = data["bars"]
    group = -(-data["lanes"] // MOST_ROWS)
    columns = (bars[name] for name in ("trial", "lane", "start", "end", "how", "workers"))
    places = zip(bars["device"], bars["node"], bars["baseline"], strict=True)
    gap = 1.0 if height > 6 else 0.4
    shown = set()
    for (trial, lane, start, end, how, workers), (device, node, baseline) in zip(
        zip(*columns, strict=True), places, strict=True
    ):
        left, right = x(start / size), x(end / size)
        kind, colour = _colour(how, trial == data["best"], baseline)
        shown.add((kind, colour))
        words = f"{trial}{', baseline' if baseline else ''}, {how} after {duration(end - start)}"
        words += f", {count(workers, 'worker')}" if workers > 1 else ""
        words += f", {device}" if device else ""
        words += f", on {node}" if node else ""
        top = frame.top + height * (lane // group) + gap / 2
        width = max(right - left - 0.5, 0.4)
        picture.box(left, top, width, height - gap, colour, hover=words)
        if kind == "best trial" and width > 44 and height >= 12:
            picture.text(left + 4, top + height - gap - 4, trial, ON_BEST, size=11)
    order = [*(name for _, name, _ in OUTCOMES), "failed or lost"]
    entries = sorted(shown, key=lambda entry: order.index(entry[0]))
    legend = Frame(frame.left, frame.top + 10, frame.right, 0)
    picture.legend(legend, [(name, colour, "box") for name, colour in entries])


# How orders end, in words, with their colours; others failed.
OUTCOMES = (
    ("best", "best trial", BEST),
    ("baseline", "baseline", SERIES[2]),
    ("completed", "completed", SERIES[0]),
    ("paused", "paused at a rung", SERIES[4]),
    ("stopped", "stopped", FAINT),
    ("suspended", "suspended", SERIES[3]),
    ("running", "running", GOOD),
)


def _colour(how: str, best: bool, baseline: bool) -> tuple[str, str]:
    """Return the kind of an order's end, and its colour."""
    fine = {outcome: (name, colour) for outcome, name, colour in OUTCOMES}
    if how in fine and (best or baseline):
        return fine["best" if best else "baseline"]
    return fine.get(how, ("failed or lost", BAD))


def _draw_density(
    picture: Picture, frame: Frame, height: float, density: list[list[float]]
) -> None:
    """Draw cells that are the darker, the more of the time their slots had work."""
    width = (frame.right - frame.left) / BINS
    for row, shares in enumerate(density):
        top = frame.top + height * row
        start = 0
        levels = [round(min(1.0, share) * 5) for share in shares]
        for place in range(1, BINS + 1):
            if place == BINS or levels[place] != levels[start]:
                if levels[start]:
                    left, cell = frame.left + start * width, (place - start) * width
                    faint = 0.15 + 0.13 * levels[start]
                    picture.box(left, top + 0.3, cell, height - 0.6, SERIES[0], faint)
                start = place
