"""What was decided of a whole sweep: who drove it, what was asked, why it closed and ended."""

from collections.abc import Iterable, Iterator

from hposvc.audit import words
from hposvc.audit.line import Line
from hposvc.events import (
    HALTS,
    Attached,
    Closed,
    Event,
    Finished,
    Full,
    Recalled,
    Requested,
    Rested,
)
from hposvc.spec import SweepSpec
from hposvc.state import SweepState


def decisions(spec: SweepSpec, events: Iterable[Event]) -> Iterator[Line]:
    """A line for each event that is of no single trial."""
    state = SweepState(spec)
    for event in events:
        running = len(state.orders)
        state.apply(event)
        found = _told(event, running, state)
        if found is not None:
            what, why, detail = found
            yield Line(event.time, None, what, why, detail)


def _told(
    event: Event, running: int, state: SweepState
) -> tuple[str, str, dict[str, object]] | None:
    """What, why, and the facts; None: nothing of the whole sweep."""
    match event:
        case Attached():
            lost = f"; {running} orders of the driver before are lost" if running else ""
            return "driven", f"by {event.driver}{lost}", {"driver": event.driver, "lost": running}
        case Recalled():
            count = len(event.trials)
            return "recalled", f"{count} trials of earlier sweeps", {"trials": count}
        case Requested():
            return "asked", words.asked(event), asked(event)
        case Closed():
            what = "stopped" if event.reason in HALTS else "closed"
            counts = f"{len(state.trials)} trials proposed, {running} running"
            return what, f"{event.reason}; {counts}", {"reason": event.reason, "running": running}
        case Full():
            return "full", event.detail, {"detail": event.detail}
        case Rested():
            return "rested", f"its driver let go: {event.reason}", {"reason": event.reason}
        case Finished():
            facts = {"state": event.state, "reason": event.reason, "best": state.best}
            return "finished", words.joined(event.state, event.reason, _best(state)), {**facts}
    return None


def asked(event: Requested) -> dict[str, object]:
    """The facts of a request."""
    detail = {"verb": event.verb, "trial": event.trial, "by": event.by}
    return {**detail, "changes": dict(event.changes)}


def _best(state: SweepState) -> str:
    if not state.front:
        return "no trial has a value"
    if state.spec.several:
        return f"{len(state.front)} trials on the front"
    trial = state.trials[state.front[0]]
    return f"best {trial.id}, {trial.metric.name} {words.values(trial.values)}"
