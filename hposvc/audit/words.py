"""What the lines of an audit say to people."""

import re
from collections.abc import Mapping
from typing import Any

from hposvc.audit.rivals import Standing, Values
from hposvc.events import Order, Requested
from hposvc.spec import SweepSpec

LONGEST = 160  # characters of a failure's last line
GIVEN = {
    "initial": "one of the spec's initial points",
    "warm_start": "led in a sweep that this one learns from",
}
DESIGNS = {"start": "quasi-random design", "fallback": "quasi-random design, as a fallback"}
THOUGHT = ("mean", "deviation", "acquisition")
SAID = (*THOUGHT, "source", "model", "reason", "method", "fits", "design")
PLACED = re.compile(r"\b(place|front) \d+ of \d+")


def number(value: object) -> str:
    """Five digits; what is no number as it is."""
    if value is None:
        return "none"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def origin(spec: SweepSpec, note: Mapping[str, Any]) -> str:
    """What proposed a configuration, and what that thought of it."""
    source = str(note.get("source", ""))
    if source in GIVEN:
        return GIVEN[source]
    by = " ".join(map(str, filter(None, ("search", spec.search.name, note.get("method")))))
    how = f"model {note['model']}" if "model" in note else DESIGNS.get(source, source)
    thought = {name: note[name] for name in THOUGHT if note.get(name) is not None}
    if isinstance(thought.get("mean"), float) and not spec.several:
        thought["mean"] = spec.objectives[0].loss(thought["mean"])  # it thinks in losses
    found = [f"{name} {number(value)}" for name, value in thought.items()]
    rest = [f"{name} {number(value)}" for name, value in note.items() if _tellable(name, value)]
    parts = (", ".join(filter(None, [by, how])), note.get("reason"))
    why = ": ".join(str(part) for part in parts if part)
    return joined(why, ", ".join(found), ", ".join(rest))


def _tellable(name: str, value: object) -> bool:
    return name not in SAID and isinstance(value, int | float | str)


def place(standing: Standing | None) -> str:
    """Where a trial stood and who stood beside it; empty: it can't be said."""
    if standing is None:
        return ""
    if len(standing.value) > 1:
        rank = f"dominated by {standing.better} of {standing.of - 1} others"
    else:
        rank = f"place {standing.better + 1} of {standing.of}"
    return f"{rank} at step {standing.step} so far: {_some(standing)}"


def beside(standing: Standing | None, said: str) -> str:
    """The same after words of the scheduler, which may have told the place."""
    if standing is None or not PLACED.search(said):
        return place(standing)
    return f"so far: {_some(standing)}"


def _some(standing: Standing) -> str:
    """The best, and those next to the trial, which stands in brackets."""
    named = [f"{trial} {values(value)}" for trial, _, value in standing.rivals]
    own = [trial == standing.trial for trial, _, _ in standing.rivals]
    some = [f"[{name}]" if this else name for name, this in zip(named, own, strict=True)]
    return ", ".join([*some, *(["…"] if standing.of > len(some) else [])])


def values(found: Values) -> str:
    """`0.31`, or `0.31/12` of several metrics."""
    return "/".join(number(value) for value in found)


def work(order: Order) -> str:
    """What an order is to do."""
    if order.start is None:
        start = "from nothing"
    else:
        whose = "its" if order.parent is None else f"{order.parent}'s"
        start = f"from {whose} checkpoint of step {order.start.step}"
    seed = f", with the random numbers of {order.seed_of}" if order.seed_of else ""
    smaller = f", micro-batches 1/{2**order.shrink}" if order.shrink else ""
    on = f" on {order.workers} workers" if order.workers else ""
    return f"steps {order.first} to {order.until}{on} {start}{seed}{smaller}"


def moved(changed: Mapping[str, Any]) -> str:
    """`lr 0.01 → 0.02`; the values are pairs of old and new."""
    return ", ".join(
        f"{name} {number(old)} → {number(new)}" for name, (old, new) in changed.items()
    )


def last_line(message: str) -> str:
    """Of a failure's message: the line that says what it was."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else "no message"


def asked(event: Requested) -> str:
    """Who wants what."""
    whom = event.trial or "the sweep"
    changes = ", ".join(f"{key}={value}" for key, value in event.changes.items())
    return f"{event.by or 'somebody'}: {event.verb} {whom}" + (f" ({changes})" if changes else "")


def joined(*parts: str) -> str:
    """Those that are not empty, in a line."""
    return "; ".join(part for part in parts if part)
