"""The audit of one trial: a fold over the events of its sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hposvc.analysis.audit import phrasing
from hposvc.analysis.audit.comparison import Rivals, TrialStanding
from hposvc.analysis.audit.entry import Line
from hposvc.analysis.audit.sweep_audit import asked
from hposvc.events import (
    MARKS,
    PRIORITY,
    QUEUE,
    TIMEOUT,
    WIDER,
    Attached,
    Checkpointed,
    Decided,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Placed,
    Proposed,
    Reported,
    Requested,
    Suggested,
)
from hposvc.spec import SweepSpec
from hposvc.spec.registry import SCHEDULERS, trait
from hposvc.state.race import why_again
from hposvc.state.summary import named
from hposvc.state.sweep import SweepState
from hposvc.state.trial import OVER, TrialPhase, TrialState
from hposvc.state.trial_table import LIMIT, PLATEAU
from hposvc.text import NONE, number
from searchers import identity
from trainables.contract import Saved

PAST_TENSE = {
    **{"continue": "continued", "pause": "paused", "park": "parked"},
    **{"stop": "stopped", "kill": "killed"},
}
# Reasons of decisions in which no other trial had a part.
SOLO_REASONS = {
    *("user", "target", "rule", "budget", "failures", "pause", "diverged", "no checkpoint"),
    *("schedule", "storage", LIMIT, PLATEAU, WIDER, QUEUE, PRIORITY, TIMEOUT),
}
# Why a parked trial got another order, by the reason of the park.
PARKED = {
    WIDER: "there was room for more workers",
    QUEUE: "another sweep had its slot by its share",
    PRIORITY: "a sweep of a higher priority had its slot",
}


@dataclass(frozen=True)
class _Before:
    """The trial's state before an event."""

    phase: TrialPhase
    order: int | None
    params: Mapping[str, Any]
    segments: int
    attempts: int
    saved: tuple[Saved, ...]


@dataclass
class TrialAudit:
    """A fold over a sweep's events that writes audit lines about one trial."""

    spec: SweepSpec
    trial: str
    lines: list[Line] = field(default_factory=list)
    state: SweepState = field(init=False)
    rivals: Rivals = field(init=False)
    replicates: dict[int | None, TrialState] = field(default_factory=dict)  # by order
    pause_written: bool = False  # whether a decision to pause has been written
    next_reason: str = "it was lost"  # the reason for its next order
    place: str = ""  # where it was at work last, as written

    def __post_init__(self) -> None:
        self.state = SweepState(self.spec)
        self.rivals = Rivals(self.spec.objectives)

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        trial = self.state.trials.get(self.trial)
        before = None if trial is None else _snapshot(trial)
        self.state.apply(event)
        self._update_rivals(event)
        trial = self.state.trials.get(self.trial)
        if trial is None:
            return
        if before is None:
            if isinstance(event, Proposed):
                self._write_proposal(event)
            return
        replicate = self._replicate_of_event(event)
        if replicate is not None:
            self._write_replicate(event, trial, replicate)
        else:
            self._write_event(event, trial, before)
            self._write_checkpoints(event, trial, before)
        self._write_phase_change(event, trial, before)

    def _update_rivals(self, event: Event) -> None:
        """Update the reports of rivals."""
        trial = self.state.trials.get(getattr(event, "trial", None) or "")
        if trial is None:
            return
        last = self.state.spec.last_step
        if isinstance(event, Reported) and trial.metrics is event.metrics:  # the report counted
            at_end = last is not None and event.step >= last
            milestone = event.step in trial.milestones or at_end
            self.rivals.add(trial.id, event.step, event.metrics, milestone)
        if trial.diverged or (trial.over and not trial.completed(last)):
            self.rivals.latest.pop(trial.id, None)

    def _replicate_of_event(self, event: Event) -> TrialState | None:
        """Return the replicate of this trial that an event is about, or None."""
        if not isinstance(event, Ordered):
            return self.replicates.get(getattr(event, "order", None))
        replicate = self.state.replicates.trials.by_order(event.order.id)
        if replicate is not None and replicate.replicate_of == self.trial:
            self.replicates[event.order.id] = replicate
            return replicate
        return None

    def _write_replicate(self, event: Event, trial: TrialState, replicate: TrialState) -> None:
        """Write a line about a replicate's order, decision, failure or end."""
        order = event.order.id if isinstance(event, Ordered) else getattr(event, "order", 0)
        detail: dict[str, Any] = {"replicate": replicate.number, "order": order}
        match event:
            case Ordered():
                why = phrasing.order_text(event.order)
            case Decided():
                why = phrasing.joined(PAST_TENSE.get(event.verdict, event.verdict), event.reason)
            case Failed():
                why = f"{event.cause}: {phrasing.failure(event.message)}"
            case Ended():
                values = replicate.values if replicate.state == "COMPLETED" else ()
                detail |= {"value": named(self.state.spec, values)}
                shown = phrasing.values(values) or NONE
                why = f"its order is done; {trial.metric.name} {shown}"
            case _:
                return
        if replicate not in trial.seeds:
            detail["replicate"] = number_of = replicate.number - self.state.replicates.own_seeds
            self._write(event, trial, "replicated", f"replicate {number_of}: {why}", detail)
            return
        if isinstance(event, Ordered) and event.order.start is None:
            why = f"{why}: {why_again(self.state, trial)}"
        if isinstance(event, Ended | Failed):
            why = phrasing.joined(why, f"its mean is {phrasing.values(trial.values) or 'none'}")
        detail["seed"] = replicate.number + 1
        self._write(event, trial, "seeded", f"seed {replicate.number + 1}: {why}", detail)

    def _write_event(self, event: Event, trial: TrialState, before: _Before) -> None:
        match event:
            case Ordered() if event.order.trial == self.trial:
                self._write_order(event, trial, before)
            case Ordered() if event.order.parent == self.trial and event.order.start is not None:
                step, copier = event.order.start.step, event.order.trial
                why = f"{copier} goes on from its checkpoint of step {step}"
                self._write(event, trial, "copied", why, {"by": copier, "of_step": step})
            case Decided() if event.trial == self.trial:
                self._write_decision(event, trial)
            case Failed() if event.trial == self.trial and event.order == before.order:
                self._write_failure(event, trial)
            case Placed() if event.trial == self.trial and event.order == before.order:
                self._write_place(event, trial)
            case Suggested() if event.trial == self.trial:
                why = phrasing.suggestion_text(event)
                detail = {"name": event.name, "value": event.value, "domain": dict(event.domain)}
                self._write(event, trial, "suggested", why, detail)
            case Attached() if before.order is not None and trial.order is None:
                self.next_reason = "the driver before was lost"
                why = f"{event.driver} took the sweep over; order {before.order} is lost"
                self._write(event, trial, "lost", why, {"driver": event.driver})
            case Requested() if event.trial in (None, self.trial) and event.verb != "propose":
                changes = before.phase not in OVER or trial.state != before.phase
                if changes or event.verb in MARKS:
                    self._write(event, trial, "asked", phrasing.request_text(event), asked(event))

    def _write_proposal(self, event: Proposed) -> None:
        why = phrasing.origin(self.state.spec, event.note)
        waited = f"a slot waited {event.waited:.3g} s for it" if event.waited else ""
        detail = {
            "searcher": self.state.spec.search.name,
            "note": dict(event.note),
            "params": dict(event.params),
            "until": event.until,
            "waited_s": event.waited,
        }
        line = Line(event.time, 0, "proposed", phrasing.joined(why, waited), detail)
        self.lines.append(line)

    def _write_order(self, event: Ordered, trial: TrialState, before: _Before) -> None:
        order = event.order
        self.pause_written = False
        detail: dict[str, Any] = {
            **{"order": order.id, "first": order.first, "until": order.until},
            **{"start": order.start and order.start.path, "parent": order.parent},
            **{"start_step": order.start and order.start.step},
            **{"seed_of": order.seed_of or order.trial, "shrink": order.shrink},
            **({"workers": order.workers} if order.workers else {}),
        }
        work = phrasing.order_text(order)
        if before.attempts == 0:
            self._write(event, trial, "ordered", f"{work}: a new trial", detail)
            return
        if trial.segments[-1].after == order.first - 1 and len(trial.segments) > before.segments:
            self._write_change(event, trial, before, detail)
            return
        if before.phase == "PAUSED":
            standing = self._standing(trial.step)
            detail["compared"] = standing and standing.data()
            why = phrasing.joined(f"{work}: it goes on", phrasing.standing_text(standing))
        else:
            why = f"{work}: {self.next_reason}"
        self._write(event, trial, "ordered", why, detail)

    def _write_place(self, event: Placed, trial: TrialState) -> None:
        """Write a line if its order is elsewhere, or on another device, than the one before."""
        place = phrasing.place_text(event.device, event.node)
        if place != self.place:
            detail = {"device": event.device, "node": event.node, "order": event.order}
            self._write(event, trial, "placed", place, detail)
        self.place = place

    def _write_change(
        self, event: Ordered, trial: TrialState, before: _Before, detail: dict[str, Any]
    ) -> None:
        """Write a line about an order with other values, or another trial's weights."""
        order, old = event.order, before.params
        names = dict.fromkeys([*old, *order.params])
        changed = {
            name: [old.get(name), order.params.get(name)]
            for name in names
            if identity(old.get(name)) != identity(order.params.get(name))
        }
        detail |= {"changed": changed}
        changes = phrasing.changes_text(changed) or "no value changed"
        if order.parent is None or order.start is None:
            self._write(event, trial, "changed", f"{phrasing.order_text(order)}: {changes}", detail)
            return
        donor, step = self.state.trials[order.parent], order.start.step
        value, own = donor.steps.get(step), trial.steps.get(trial.step)
        detail |= {"donor": donor.id, "donor_step": step, "donor_value": value, "value": own}
        detail |= {"donor_params": dict(donor.params_at(step))}
        stood = f"{trial.metric.name} {number(value)}, and its own is {number(own)}"
        why = phrasing.joined(f"{phrasing.order_text(order)}, with {stood}", changes)
        self._write(event, trial, "exploited", why, detail)

    def _write_decision(self, event: Decided, trial: TrialState) -> None:
        alone = event.whole or event.reason in SOLO_REASONS
        standing = None if alone else self._standing(event.step)
        with_all = "with the whole sweep" if event.whole else ""
        why = phrasing.joined(
            event.reason, event.detail, with_all, phrasing.standing_after(standing, event.detail)
        )
        detail: dict[str, Any]
        detail = {"verdict": event.verdict, "reason": event.reason, "said": event.detail}
        detail |= {"whole": event.whole, "compared": standing and standing.data()}
        if event.verdict == "park":
            self.next_reason = PARKED.get(event.reason, "its slot was taken for a while")
        self.pause_written = event.verdict == "pause"
        word = PAST_TENSE.get(event.verdict, str(event.verdict))
        self.lines.append(Line(event.time, event.step, word, why, detail))

    def _write_failure(self, event: Failed, trial: TrialState) -> None:
        allowed = self.state.spec.failure.retries(event.cause)
        count, again = trial.failures.get(event.cause, 0), trial.state == "PENDING"
        limit = "any number" if allowed is None else allowed
        if again:
            outcome = f"it is tried again ({count} of {limit} for {event.cause})"
        elif trial.state == "FAILED":
            outcome = f"it is given up ({limit} tries again allowed for {event.cause})"
        else:
            outcome = "it is not tried again" if trial.over else "its steps were done"
        retry_at = self.state.trials.backing_off.get(trial.id)
        wait = "" if retry_at is None else f"after {retry_at - event.time:.3g} s"
        damaged = "its checkpoint can't be used" if event.damaged else ""
        self.next_reason = f"tried again after {event.cause}"
        why = phrasing.joined(
            f"{event.cause}: {phrasing.failure(event.message)}", damaged, outcome, wait
        )
        detail = {"cause": event.cause, "message": event.message, "damaged": event.damaged}
        detail |= {"again": again, "count": count, "allowed": allowed, "order": event.order}
        self._write(event, trial, "failed", why, detail)

    def _write_checkpoints(self, event: Event, trial: TrialState, before: _Before) -> None:
        """Write lines about saved and removed checkpoints."""
        new = [saved for saved in trial.checkpoints if saved not in before.saved]
        gone = [saved for saved in before.saved if saved not in trial.checkpoints]
        if isinstance(event, Checkpointed) and event.trial == self.trial and not new:
            gone.append(event.saved)
        for saved in new:
            within = f", within the step after, {saved.within} updates" if saved.within else ""
            detail = {"of_step": saved.step, "path": saved.path}
            why = f"checkpoint of step {saved.step}{within}"
            self.lines.append(Line(event.time, saved.step, "saved", why, detail))
        rules = self.state.spec.checkpoints
        for saved in gone:
            rule = f"the last {rules.keep_last} and the best {rules.keep_best} are kept"
            damaged = isinstance(event, Failed) and event.damaged
            why = f"checkpoint of step {saved.step}: {'damaged' if damaged else rule}"
            self._write(event, trial, "removed", why, {"of_step": saved.step, "path": saved.path})

    def _write_phase_change(self, event: Event, trial: TrialState, before: _Before) -> None:
        """Write a line if the trial paused, ended or was reopened, or its reports are doubtful."""
        if isinstance(event, Ended) and event.trial == self.trial and event.warning:
            self._write(event, trial, "doubtful", event.warning, {})
        if trial.state == before.phase:
            return
        if trial.state == "PAUSED" and not self.pause_written:
            standing = self._standing(trial.step)
            detail = {"reason": "its order is done", "compared": standing and standing.data()}
            why = phrasing.joined("its order is done", phrasing.standing_text(standing))
            self._write(event, trial, "paused", why, detail)
        elif trial.over and before.phase not in OVER:
            waited = before.phase == "PAUSED" and isinstance(event, Finished)
            standing = self._standing(trial.step) if waited else None
            reason = phrasing.joined(trial.state, trial.reason, trial.metric.name)
            why = f"{reason} {phrasing.values(trial.values) or 'none'}"
            end: dict[str, Any]
            end = {"state": trial.state, "reason": trial.reason, "value": list(trial.values)}
            end |= {"compared": standing and standing.data()}
            why = phrasing.joined(why, phrasing.standing_text(standing))
            self._write(event, trial, "ended", why, end)
        elif before.phase in OVER:
            self.next_reason = "it was opened again"
            self._write(event, trial, "reopened", f"it was {before.phase}", {"was": before.phase})

    def _standing(self, step: int) -> TrialStanding | None:
        across_steps = trait(SCHEDULERS, self.state.spec.scheduler, "compares_across_steps")
        return self.rivals.standing(self.trial, step, across_steps)

    def _write(
        self, event: Event, trial: TrialState, word: str, why: str, detail: Mapping[str, Any]
    ) -> None:
        self.lines.append(Line(event.time, trial.step, word, why, detail))


def _snapshot(trial: TrialState) -> _Before:
    order = None if trial.order is None else trial.order.id
    saved = tuple(trial.checkpoints)
    return _Before(trial.state, order, trial.params, len(trial.segments), trial.attempts, saved)
