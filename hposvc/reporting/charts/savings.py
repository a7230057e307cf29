"""Draw what early stopping saved, with an interval."""

from collections.abc import Mapping
from typing import Any

from hposvc.analysis.early_stopping import savings
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.svg import (
    GOOD,
    INK,
    MUTED,
    PAPER,
    SERIES,
    Frame,
    Linear,
    Mark,
    Picture,
    text_width,
)
from hposvc.text import cost_range, cost_text, count


def build(history: History) -> Chart | None:
    """Return the chart; None: trials have no last step, or none was stopped early."""
    state, estimate = history.state, savings(history.state)
    if estimate is None:
        return None
    saved = estimate.rank_s.map(history.cost)
    data = {
        "cost_unit": history.cost_unit,
        "trials": sum(bool(trial.curve) for trial in state.trials.values()),
        "stopped": estimate.stopped,
        "completed": estimate.completed,
        "spent": history.cost(history.rank_s),
        **saved.data("saved"),
        "last": state.spec.last_step,
        "unit": state.spec.unit,
        "by_step": {
            "step": [*estimate.by_step],
            "trials": [trials for trials, _ in estimate.by_step.values()],
            "saved": [history.cost(saved) for _, saved in estimate.by_step.values()],
        },
    }
    return Chart("savings", "What early stopping saved", _message(data), data)


def _message(data: Mapping[str, Any]) -> str:
    def shown(cost: float) -> str:
        return cost_text(cost, data["cost_unit"])

    interval = ""
    if data["low"] is not None:
        between = cost_range(data["low"], data["high"], data["cost_unit"], data["saved"])
        interval = f" ({data['confidence']:.0%} interval: {between})" if between else ""
    return (
        f"Stopping {count(data['stopped'], 'trial')} early saved about {shown(data['saved'])}"
        f"{interval}: the sweep cost {shown(data['spent'])} instead of "
        f"{shown(data['spent'] + data['saved'])}. The saving is a forecast: stopped trials at the "
        "pace of those that came to the end."
    )


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    steps = data["by_step"]
    picture = Picture(
        "What early stopping saved", f"{data['cost_unit']} spent and saved", height=140
    )
    frame = Frame(18, 56, picture.width - 40, 100)
    total = data["spent"] + max(data["saved"], data["high"] or 0.0)
    x = Linear(0.0, total or 1.0, frame.left, frame.right)
    unit, confidence = data["cost_unit"], f"{data['confidence']:.0%}"
    picture.text(2, 20, f"cost of the sweep, {unit}")
    entries: list[tuple[str, str, Mark]] = [("spent", SERIES[0], "box")]
    entries.append(("saved, a forecast", GOOD, "box"))
    if data["low"] is not None:
        entries.append((f"{confidence} interval", INK, "line"))
    picture.legend(Frame(frame.left, 38, picture.width - 18, 0), entries)
    middle = x(data["spent"])
    picture.box(frame.left, frame.top, middle - frame.left, 34, SERIES[0], corner=2)
    spent = f"{cost_text(data['spent'], unit)} spent"
    picture.text(frame.left, frame.top - 8, spent, INK, bold=True)
    left = middle
    rows = list(zip(steps["step"], steps["trials"], steps["saved"], strict=True))
    for place, (step, trials, saved) in enumerate(rows):
        right = left + x(saved) - frame.left
        words = f"{count(trials, 'trial')} stopped at {data['unit']} {step}, "
        words += f"which saved {cost_text(saved, unit)}"
        faint = 0.8 - 0.5 * place / len(rows)
        picture.box(left, frame.top, max(0.5, right - left - 1), 34, GOOD, faint, hover=words)
        label = f"at {data['unit']} {step}"
        if right - left > text_width(label, 11) + 4:
            middle_of = (left + right) / 2
            picture.text(middle_of, frame.top + 50, label, MUTED, "middle", size=11)
        left = right
    text = f"{cost_text(data['saved'], unit)} saved by {count(data['stopped'], 'stopped trial')}"
    least = frame.left + text_width(spent) + 24
    at = max(least, min(middle + 4, frame.right - text_width(text)))
    picture.text(at, frame.top - 8, text, INK, bold=True)
    if data["low"] is not None:
        low, high = x(data["spent"] + data["low"]), x(data["spent"] + data["high"])
        y = frame.top + 17
        for width, colour in ((5.0, PAPER), (1.8, INK)):
            picture.line([(low, y), (high, y)], colour, width)
            picture.line([(low, y - 6), (low, y + 6)], colour, width)
            picture.line([(high, y - 6), (high, y + 6)], colour, width)
    picture.note(
        f"Stopped trials at their own pace, corrected by {data['completed']} that came to the end."
    )
    return picture.svg()
