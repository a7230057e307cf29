"""The texts of an audit, for people."""

import re
from collections.abc import Mapping
from typing import Any

from hposvc.analysis.audit.comparison import TrialStanding, Values
from hposvc.events import Requested, Suggested, error_line
from hposvc.spec import SweepSpec
from hposvc.state.proposals import PROPOSED
from hposvc.text import number, value_text
from trainables.contract import Order

MAX_MESSAGE = 160  # characters of a failure's last line
ORIGINS = {
    "initial": "one of the spec's initial points",
    "baseline": "the spec's baseline",
    "warm_start": "led in a sweep that this one learns from",
}
DESIGNS = {"start": "quasi-random design", "fallback": "quasi-random design, as a fallback"}
PREDICTIONS = ("mean", "deviation", "noise", "acquisition")
PHRASED_NOTES = (*PREDICTIONS, "source", "model", "reason", "method", "fits", "design")
RANK_PATTERN = re.compile(r"\b(place|rank|front) \d+ of \d+")


def origin(spec: SweepSpec, note: Mapping[str, Any]) -> str:
    """Return the source of a configuration, and what its searcher expected of it."""
    source = str(note.get("source", ""))
    if source in ORIGINS:
        return ORIGINS[source]
    if source == PROPOSED:
        return f"proposed by {note.get('by') or 'somebody'}"
    by = " ".join(map(str, filter(None, ("search", spec.search.name, note.get("method")))))
    how = f"model {note['model']}" if "model" in note else DESIGNS.get(source, source)
    predicted = {name: note[name] for name in PREDICTIONS if note.get(name) is not None}
    if isinstance(predicted.get("mean"), float) and not spec.several:
        predicted["mean"] = spec.objectives[0].loss(predicted["mean"])  # searchers predict losses
    predictions = [f"{name} {value_text(value)}" for name, value in predicted.items()]
    others = [
        f"{name} {value_text(value)}"
        for name, value in note.items()
        if name not in PHRASED_NOTES and isinstance(value, int | float | str)
    ]
    parts = (", ".join(filter(None, [by, how])), note.get("reason"))
    why = ": ".join(str(part) for part in parts if part)
    return joined(why, ", ".join(predictions), ", ".join(others))


def standing_text(standing: TrialStanding | None) -> str:
    """Return a trial's rank and its nearest rivals; empty: it has no standing."""
    if standing is None:
        return ""
    if len(standing.value) > 1:
        rank = f"dominated by {standing.better} of {standing.of - 1} others"
    else:
        rank = f"rank {standing.better + 1} of {standing.of}"
    return f"{rank} at step {standing.step} so far: {_shown_rivals(standing)}"


def standing_after(standing: TrialStanding | None, scheduler_text: str) -> str:
    """Return a trial's standing, without the rank if the scheduler's text has it."""
    if standing is None or not RANK_PATTERN.search(scheduler_text):
        return standing_text(standing)
    return f"so far: {_shown_rivals(standing)}"


def _shown_rivals(standing: TrialStanding) -> str:
    """Return the best rivals and the trial's neighbours; the trial itself is in brackets."""
    named = [f"{trial} {values(value)}" for trial, _, value in standing.rivals]
    is_trial = [trial == standing.trial for trial, _, _ in standing.rivals]
    some = [f"[{name}]" if is_this else name for name, is_this in zip(named, is_trial, strict=True)]
    return ", ".join([*some, *(["…"] if standing.of > len(some) else [])])


def values(metric_values: Values) -> str:
    """Return values as `0.31`, or as `0.31/12` with several metrics."""
    return "/".join(number(value) for value in metric_values)


def order_text(order: Order) -> str:
    """Return the steps, start and workers of an order."""
    if order.memo:
        start = f"taken from {order.memo}, which trained them before"
    elif order.start is None:
        start = "from nothing"
    else:
        whose = "its" if order.parent is None else f"{order.parent}'s"
        start = f"from {whose} checkpoint of step {order.start.step}"
    seed = f", with the random numbers of {order.seed_of}" if order.seed_of else ""
    smaller = f", micro-batches 1/{2**order.shrink}" if order.shrink else ""
    on = f" on {order.workers} workers" if order.workers else ""
    until = "its own end" if order.until is None else f"{order.until}"
    return f"steps {order.first} to {until}{on} {start}{seed}{smaller}"


def suggestion_text(event: Suggested) -> str:
    """Return the value of a parameter that a trial decided while it ran, and its range."""
    domain = ", ".join(f"{key} {value}" for key, value in event.domain.items())
    return f"{event.name} is {value_text(event.value)}; its sweep lacks this parameter ({domain})"


def place_text(device: str, node: str) -> str:
    """Return where an order is at work."""
    return " ".join(part for part in (device and f"on {device}", node and f"at {node}") if part)


def changes_text(changed: Mapping[str, Any]) -> str:
    """Return changes as `lr 0.01 → 0.02`, from pairs of an old and a new value."""
    return ", ".join(
        f"{name} {value_text(old)} → {value_text(new)}" for name, (old, new) in changed.items()
    )


def failure(message: str) -> str:
    """Return the line of a failure's message that says what went wrong, cut to fit a table."""
    return error_line(message)[:MAX_MESSAGE] or "no message"


def request_text(event: Requested) -> str:
    """Return who requested what, of which trial."""
    whom = event.trial or "the sweep"
    changes = ", ".join(f"{key}={value}" for key, value in event.changes.items())
    details = f" ({changes})" if changes else ""
    refusal = f"; refused: {event.refused}" if event.refused else ""
    return f"{event.by or 'somebody'}: {event.verb} {whom}{details}{refusal}"


def joined(*parts: str) -> str:
    """Join the parts that are not empty into a line."""
    return "; ".join(part for part in parts if part)
