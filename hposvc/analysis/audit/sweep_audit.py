"""The audit of a whole sweep: its drivers, requests, and the reasons why it closed and ended."""

from dataclasses import dataclass, field

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


@dataclass
class SweepAudit:
    """A fold over a sweep's events with a line for each that is not about a single trial.

    The first suggestion of a parameter that the sweep lacks has a line too, and at the end each
    parameter that no trial has asked for.
    """

    spec: SweepSpec
    lines: list[Line] = field(default_factory=list)
    state: SweepState = field(init=False)
    unsearched: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.state = SweepState(self.spec)

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        if isinstance(event, Suggested) and event.name not in self.unsearched:
            self.unsearched.add(event.name)
            detail: dict[str, object] = {"name": event.name, "domain": dict(event.domain)}
            self._write(event, "unsearched", describe_unsearched(event.name, self.spec), detail)
        running = len(self.state.trials.orders)
        self.state.apply(event)
        if isinstance(event, Finished):
            for name in unused(self.state):
                self._write(event, "unused", describe_unused(name), {"name": name})
        described = _describe(event, running, self.state)
        if described is not None:
            self._write(event, *described)

    def _write(self, event: Event, what: str, why: str, detail: dict[str, object]) -> None:
        self.lines.append(Line(event.time, None, what, why, detail))


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
            why = learned_from(state) or "no trials of earlier sweeps"
            return "warm-started", why, {"trials": len(event.trials), "sweeps": sweeps}
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
