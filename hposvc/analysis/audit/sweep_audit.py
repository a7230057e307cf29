"""The audit of a whole sweep: its drivers, requests, and the reasons why it closed and ended."""

from collections.abc import Iterable, Iterator

from hposvc.analysis.audit import phrasing
from hposvc.analysis.audit.entry import Line
from hposvc.events import (
    HALTS,
    Alerted,
    Attached,
    Closed,
    Event,
    Finished,
    Requested,
    StorageExhausted,
    Suggested,
    Suspended,
    WarmStarted,
)
from hposvc.spec import SweepSpec
from hposvc.state.summary import (
    describe_unsearched,
    describe_unused,
    earlier_trials,
    learned_from,
    unused,
)
from hposvc.state.sweep import SweepState


def decisions(spec: SweepSpec, events: Iterable[Event]) -> Iterator[Line]:
    """Yield a line for each event that is not about a single trial.

    The first suggestion of a parameter that the sweep lacks has a line too, and at the end each
    parameter that no trial has asked for.
    """
    state = SweepState(spec)
    unsearched: set[str] = set()
    for event in events:
        if isinstance(event, Suggested):
            if event.name not in unsearched:
                why = describe_unsearched(event.name, spec)
                detail: dict[str, object] = {"name": event.name, "domain": dict(event.domain)}
                yield Line(event.time, None, "unsearched", why, detail)
            unsearched.add(event.name)
        running = len(state.trials.orders)
        state.apply(event)
        if isinstance(event, Finished):
            for name in unused(state):
                yield Line(event.time, None, "unused", describe_unused(name), {"name": name})
        described = _describe(event, running, state)
        if described is not None:
            word, why, detail = described
            yield Line(event.time, None, word, why, detail)


def _describe(
    event: Event, running: int, state: SweepState
) -> tuple[str, str, dict[str, object]] | None:
    """Return the word, reason and facts of an event; None: it is not about the whole sweep."""
    match event:
        case Attached():
            running -= len(event.kept)
            lost = f"; {running} running trials of the driver before start again" if running else ""
            lost += f"; {len(event.kept)} trials of agents go on" if event.kept else ""
            host, _, pid = event.driver.rpartition(":")
            by = f"by process {pid} on {host}{lost}"
            return "driven", by, {"driver": event.driver, "lost": running}
        case WarmStarted():
            sweeps = earlier_trials(state)
            why = f"{len(event.trials)} trials of earlier sweeps"
            why += f": {learned_from(state)}" if sweeps else ""
            return "recalled", why, {"trials": len(event.trials), "sweeps": sweeps}
        case Requested():
            return "asked", phrasing.request_text(event), asked(event)
        case Closed():
            word = "stopped" if event.reason in HALTS else "closed"
            said = event.detail or event.reason
            why = "trials.max is reached" if event.reason == "trials" else said
            no_more = "" if event.reason in HALTS else "no new trials: "
            counts = f"{len(state.trials)} trials proposed, {running} running"
            closing = {"reason": event.reason, "running": running}
            return word, f"{no_more}{why}; {counts}", {**closing}
        case StorageExhausted():
            return "full", event.detail, {"detail": event.detail}
        case Alerted():
            facts = {"moment": event.what, "at": event.at, "trial": event.trial}
            return "alerted", f"{event.what}: {event.text}", {**facts}
        case Suspended():
            return "paused", f"the driver has ended: {event.reason}", {"reason": event.reason}
        case Finished():
            facts = {"state": event.state, "reason": event.reason, "best": state.best}
            return "finished", phrasing.joined(event.state, event.reason, _best(state)), {**facts}
    return None


def asked(event: Requested) -> dict[str, object]:
    """Return the facts of a request."""
    detail = {"verb": event.verb, "trial": event.trial, "by": event.by}
    refusal = {"refused": event.refused} if event.refused else {}
    return {**detail, "changes": dict(event.changes), **refusal}


def _best(state: SweepState) -> str:
    if not state.front:
        return "no trial has a value"
    if state.spec.several:
        return f"{len(state.front)} trials on the front"
    trial = state.trials[state.front[0]]
    return f"best {trial.id}, {trial.metric.name} {phrasing.values(trial.values)}"
