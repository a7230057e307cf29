"""Failures by cause: how many, what became of their trials, what they cost, what they said."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hposvc.analysis.failure_words import DIVERGED, LOST, MEANINGS
from hposvc.events import OWN
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History, OrderFailure
from hposvc.reporting.svg import BAD, FAINT, INK, MUTED, Frame, Linear, Picture, fitted, text_width
from hposvc.text import cost_text, count

MOST_EVENTS = 2000  # in the data, the newest
ROW = 44  # pixels


def build(history: History) -> Chart | None:
    """Return the chart; None: nothing failed."""
    rows = _failures(history)
    if not rows:
        return None
    by_cause = Counter(row.cause for row in rows)
    causes = [_cause(cause, [row for row in rows if row.cause == cause]) for cause in by_cause]
    causes.sort(key=lambda cause: (-cause["given_up"], -cause["count"], cause["cause"]))
    shown = rows[-MOST_EVENTS:]
    data = {
        "orders": len(history.spans),
        "cost_unit": history.cost_unit,
        "causes": causes,
        "events": {
            "seconds": [row.time - history.start for row in shown],
            "trial": [row.trial for row in shown],
            "step": [row.step for row in shown],
            "cause": [row.cause for row in shown],
            "again": [row.again for row in shown],
            "message": [row.message for row in shown],
        },
    }
    return Chart("failures", "Failures by cause", _message(causes, len(history.spans)), data)


def _failures(history: History) -> list[OrderFailure]:
    """Return all failures: reported ones, orders of dead drivers, and metrics that diverged."""
    rows = list(history.failures)
    for span in history.spans.values():
        if span.how == LOST and span.end is not None:
            cost = history.cost((span.end - span.start) * span.workers)
            message = "the driver was lost, and its orders with it"
            rows.append(
                OrderFailure(span.trial, span.first - 1, span.end, LOST, message, True, cost)
            )
    diverged = {row.trial for row in history.failures if row.cause == DIVERGED}
    for trial in history.state.trials.values():
        if trial.diverged and trial.id not in diverged and history.readings.get(trial.id):
            last = history.readings[trial.id][-1]
            message = f"{trial.metric.name} is not finite at step {last.step}"
            rows.append(OrderFailure(trial.id, last.step, last.time, DIVERGED, message))
    return sorted(rows, key=lambda row: row.time)


def _cause(cause: str, rows: list[OrderFailure]) -> dict[str, Any]:
    """Return the figures of one cause, and its most frequent message."""
    message, times = Counter(row.message for row in rows).most_common(1)[0]
    retried = sum(row.again for row in rows)
    return {
        "cause": cause,
        "meaning": MEANINGS.get(cause, ""),
        "own": cause in OWN,
        "count": len(rows),
        "trials": len({row.trial for row in rows}),
        "retried": retried,
        "given_up": len(rows) - retried,
        "cost": sum(row.cost for row in rows),
        "message": message,
        "message_count": times,
    }


def _message(causes: list[dict[str, Any]], orders: int) -> str:
    total, lost = sum(row["count"] for row in causes), sum(row["given_up"] for row in causes)
    text = f"{count(total, 'failure')} in {count(orders, 'order')}"
    if not lost:
        return f"{text}; all were tried again, so no trial was lost."
    worst = causes[0]
    named = f"{worst['cause']} ({worst['meaning']})" if worst["meaning"] else worst["cause"]
    share = f"{worst['given_up']} by {named}" if worst["given_up"] < lost else f"all by {named}"
    return f"{text}; {count(lost, 'trial')} ended by one, {share}."


def draw(data: Mapping[str, Any]) -> str:
    """Return the chart as SVG."""
    rows = data["causes"]
    picture = Picture("Failures by cause", "failures of orders", height=44 + ROW * len(rows))
    frame = Frame(96, 40, picture.width - 170, picture.height - 4)
    picture.legend(
        Frame(frame.left, 38, picture.width - 18, 0),
        [("tried again", FAINT, "box"), ("ended the trial", BAD, "box")],
    )
    picture.text(2, 20, "failures of orders")
    x = Linear(0.0, float(max(row["count"] for row in rows)), frame.left, frame.right)
    for place, row in enumerate(rows):
        top = frame.top + ROW * place
        words = f"{row['meaning']}: {row['message']}"
        picture.text(frame.left - 8, top + 14, row["cause"], INK, "end", bold=True, hover=words)
        middle = x(row["given_up"])
        picture.box(frame.left, top + 3, middle - frame.left, 14, BAD, hover=words)
        picture.box(middle, top + 3, x(row["count"]) - middle, 14, FAINT, hover=words)
        figures = f"{row['count']}"
        if row["cost"]:
            figures += f", {cost_text(row['cost'], data['cost_unit'])}"
        picture.text(x(row["count"]) + 7, top + 14, figures, INK)
        times = f" ({row['message_count']}×)" if row["message_count"] > 1 else ""
        room = picture.width - frame.left - 20 - text_width(times, 11)
        picture.text(frame.left, top + 31, fitted(row["message"], room, 11) + times, MUTED, size=11)
    return picture.svg()
