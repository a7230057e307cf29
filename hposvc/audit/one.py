"""The fold that follows one trial through its sweep's events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hposvc.audit import words
from hposvc.audit.line import Line
from hposvc.audit.rivals import Rivals, Standing
from hposvc.audit.whole import asked
from hposvc.events import (
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
    Proposed,
    Reported,
    Requested,
)
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.trial import OVER, TrialPhase, TrialState
from searchers.values import identity
from trainables.checkpoints.checkpoint import Saved

DONE = {
    **{"continue": "continued", "pause": "paused", "park": "parked"},
    **{"stop": "stopped", "kill": "killed"},
}
# Decisions that no other trial had a part in.
ALONE = {"user", "target", "budget", "failures", "pause", "diverged", "no checkpoint", "schedule"}
ALONE |= {WIDER, TIMEOUT}
POPULATIONS = {"pbt", "pb2"}  # whose members stand at different steps when they are compared


@dataclass(frozen=True)
class _Before:
    """The trial as it was before an event."""

    phase: TrialPhase
    order: int | None
    params: Mapping[str, Any]
    lives: int
    attempts: int
    saved: tuple[Saved, ...]


@dataclass
class Following:
    """Writes lines about one trial as events come by."""

    spec: SweepSpec
    trial: str
    lines: list[Line] = field(default_factory=list)
    state: SweepState = field(init=False)
    rivals: Rivals = field(init=False)
    repeats: dict[int, int] = field(default_factory=dict)  # of it as a finalist, by order
    told: bool = False  # that it is to pause
    because: str = "it was lost"  # why it needs its next order

    def __post_init__(self) -> None:
        self.state = SweepState(self.spec)
        self.rivals = Rivals(self.spec.objectives)

    def read(self, event: Event) -> None:
        """Take the next event in."""
        trial = self.state.trials.get(self.trial)
        before = None if trial is None else _look(trial)
        self.state.apply(event)
        self._watch(event)
        trial = self.state.trials.get(self.trial)
        if trial is None:
            return
        if before is None:
            if isinstance(event, Proposed):
                self._propose(event)
            return
        if self._of_a_repeat(event):
            self._repeat(event, trial)
        else:
            self._tell(event, trial, before)
            self._keep(event, trial, before)
        self._move(event, trial, before)

    def _watch(self, event: Event) -> None:
        """With whom it may be compared from here on."""
        trial = self.state.trials.get(getattr(event, "trial", None) or "")
        if trial is None:
            return
        last = self.state.spec.last_step
        if isinstance(event, Reported) and trial.metrics is event.metrics:  # it counted
            milestone = event.step in trial.milestones or event.step >= last
            self.rivals.hear(trial.id, event.step, event.metrics, milestone)
        if trial.diverged or (trial.over and not trial.completed(last)):
            self.rivals.latest.pop(trial.id, None)

    def _of_a_repeat(self, event: Event) -> bool:
        """Whether it is about this trial as a finalist, trained again with other random numbers."""
        if isinstance(event, Ordered):
            if event.order.trial == self.trial and event.order.repeat:
                self.repeats[event.order.id] = event.order.repeat
            return event.order.id in self.repeats
        return getattr(event, "order", None) in self.repeats

    def _repeat(self, event: Event, trial: TrialState) -> None:
        """What became of a repeat, but for its reports."""
        order = event.order.id if isinstance(event, Ordered) else getattr(event, "order", 0)
        number = self.repeats[order]
        detail: dict[str, Any] = {"repeat": number, "order": order}
        match event:
            case Ordered():
                why = words.work(event.order)
            case Decided():
                why = words.joined(DONE.get(event.verdict, event.verdict), event.reason)
            case Failed():
                why = f"{event.cause}: {words.last_line(event.message)}"
            case Ended():
                found = self.state.finals.repeats.get(trial.id, [])
                value = found[number - 1].value if number <= len(found) else None
                detail |= {"value": value}
                why = f"its order is done; {trial.metric.name} {words.number(value)}"
            case _:
                return
        why = f"repeat {number} as a finalist: {why}"
        self._write(event, trial, "repeated", why, detail)

    def _tell(self, event: Event, trial: TrialState, before: _Before) -> None:
        match event:
            case Ordered() if event.order.trial == self.trial:
                self._order(event, trial, before)
            case Ordered() if event.order.parent == self.trial and event.order.start is not None:
                step, other = event.order.start.step, event.order.trial
                why = f"{other} goes on from its checkpoint of step {step}"
                self._write(event, trial, "copied", why, {"by": other, "of_step": step})
            case Decided() if event.trial == self.trial:
                self._decide(event, trial)
            case Failed() if event.trial == self.trial and event.order == before.order:
                self._fail(event, trial)
            case Attached() if before.order is not None:
                self.because = "the driver before was lost"
                why = f"{event.driver} took the sweep over; order {before.order} is lost"
                self._write(event, trial, "lost", why, {"driver": event.driver})
            case Requested() if event.trial in (None, self.trial):
                if before.phase not in OVER or trial.state != before.phase:
                    self._write(event, trial, "asked", words.asked(event), asked(event))

    def _propose(self, event: Proposed) -> None:
        why = words.origin(self.state.spec, event.note)
        waited = f"a slot waited {event.waited:.3g} s for it" if event.waited else ""
        detail = {
            "searcher": self.state.spec.search.name,
            "note": dict(event.note),
            "params": dict(event.params),
            "until": event.until,
            "waited_s": event.waited,
        }
        line = Line(event.time, 0, "proposed", words.joined(why, waited), detail)
        self.lines.append(line)

    def _order(self, event: Ordered, trial: TrialState, before: _Before) -> None:
        order = event.order
        self.told = False
        detail: dict[str, Any] = {
            **{"order": order.id, "first": order.first, "until": order.until},
            **{"start": order.start and order.start.path, "parent": order.parent},
            **{"start_step": order.start and order.start.step},
            **{"seed_of": order.seed_of or order.trial, "shrink": order.shrink},
            **({"workers": order.workers} if order.workers else {}),
        }
        work = words.work(order)
        if before.attempts == 0:
            self._write(event, trial, "ordered", f"{work}: a new trial", detail)
            return
        if trial.lives[-1].after == order.first - 1 and len(trial.lives) > before.lives:
            self._change(event, trial, before, detail)
            return
        if before.phase == "PAUSED":
            standing = self._standing(trial.step)
            detail["compared"] = standing and standing.data()
            why = words.joined(f"{work}: it goes on", words.place(standing))
        else:
            why = f"{work}: {self.because}"
        self._write(event, trial, "ordered", why, detail)

    def _change(
        self, event: Ordered, trial: TrialState, before: _Before, detail: dict[str, Any]
    ) -> None:
        """It goes on with other values, or with another's weights."""
        order, old = event.order, before.params
        names = dict.fromkeys([*old, *order.params])
        changed = {
            name: [old.get(name), order.params.get(name)]
            for name in names
            if identity(old.get(name)) != identity(order.params.get(name))
        }
        detail |= {"changed": changed}
        said = words.moved(changed) or "no value changed"
        if order.parent is None or order.start is None:
            self._write(event, trial, "changed", f"{words.work(order)}: {said}", detail)
            return
        donor, step = self.state.trials[order.parent], order.start.step
        value, own = donor.steps.get(step), trial.steps.get(trial.step)
        detail |= {"donor": donor.id, "donor_step": step, "donor_value": value, "value": own}
        detail |= {"donor_params": dict(donor.params_at(step))}
        stood = f"{trial.metric.name} {words.number(value)}, and its own is {words.number(own)}"
        why = words.joined(f"{words.work(order)}, with {stood}", said)
        self._write(event, trial, "exploited", why, detail)

    def _decide(self, event: Decided, trial: TrialState) -> None:
        alone = event.whole or event.reason in ALONE
        standing = None if alone else self._standing(event.step)
        with_all = "with the whole sweep" if event.whole else ""
        why = words.joined(
            event.reason, event.detail, with_all, words.beside(standing, event.detail)
        )
        detail: dict[str, Any]
        detail = {"verdict": event.verdict, "reason": event.reason, "said": event.detail}
        detail |= {"whole": event.whole, "compared": standing and standing.data()}
        if event.verdict == "park":
            self.because = "its slot was taken for a while"
            if event.reason == WIDER:
                self.because = "there was room for more workers"
        self.told = event.verdict == "pause"
        what = DONE.get(event.verdict, str(event.verdict))
        self.lines.append(Line(event.time, event.step, what, why, detail))

    def _fail(self, event: Failed, trial: TrialState) -> None:
        allowed = self.state.spec.failure.retries(event.cause)
        count, again = trial.failures.get(event.cause, 0), trial.state == "PENDING"
        most = "any number" if allowed is None else allowed
        if again:
            follows = f"it is tried again ({count} of {most} for {event.cause})"
        elif trial.state == "FAILED":
            follows = f"it is given up ({most} tries again allowed for {event.cause})"
        else:
            follows = "it is not tried again" if trial.over else "its steps were done"
        at = self.state.cooling.get(trial.id)
        wait = "" if at is None else f"after {at - event.time:.3g} s"
        damaged = "its checkpoint can't be used" if event.damaged else ""
        self.because = f"tried again after {event.cause}"
        why = words.joined(
            f"{event.cause}: {words.last_line(event.message)}", damaged, follows, wait
        )
        detail = {"cause": event.cause, "message": event.message, "damaged": event.damaged}
        detail |= {"again": again, "count": count, "allowed": allowed, "order": event.order}
        self._write(event, trial, "failed", why, detail)

    def _keep(self, event: Event, trial: TrialState, before: _Before) -> None:
        """Checkpoints that came and went."""
        new = [saved for saved in trial.checkpoints if saved not in before.saved]
        gone = [saved for saved in before.saved if saved not in trial.checkpoints]
        if isinstance(event, Checkpointed) and event.trial == self.trial and not new:
            gone.append(event.saved)
        for saved in new:
            within = f", within the step after, {saved.within} updates" if saved.within else ""
            detail = {"of_step": saved.step, "path": saved.path}
            why = f"checkpoint of step {saved.step}{within}"
            self.lines.append(Line(event.time, saved.step, "saved", why, detail))
        kept = self.state.spec.checkpoints
        for saved in gone:
            rule = f"the last {kept.keep_last} and the best {kept.keep_best} are kept"
            damaged = isinstance(event, Failed) and event.damaged
            why = f"checkpoint of step {saved.step}: {'damaged' if damaged else rule}"
            self._write(event, trial, "removed", why, {"of_step": saved.step, "path": saved.path})

    def _move(self, event: Event, trial: TrialState, before: _Before) -> None:
        """It came to rest, to its end, or back."""
        if trial.state == before.phase:
            return
        if trial.state == "PAUSED" and not self.told:
            standing = self._standing(trial.step)
            detail = {"reason": "its order is done", "compared": standing and standing.data()}
            why = words.joined("its order is done", words.place(standing))
            self._write(event, trial, "paused", why, detail)
        elif trial.over and before.phase not in OVER:
            waited = before.phase == "PAUSED" and isinstance(event, Finished)
            standing = self._standing(trial.step) if waited else None
            reason = words.joined(trial.state, trial.reason, trial.metric.name)
            why = f"{reason} {words.values(trial.values) or 'none'}"
            told: dict[str, Any]
            told = {"state": trial.state, "reason": trial.reason, "value": list(trial.values)}
            told |= {"compared": standing and standing.data()}
            self._write(event, trial, "ended", words.joined(why, words.place(standing)), told)
        elif before.phase in OVER:
            self.because = "it was opened again"
            self._write(event, trial, "reopened", f"it was {before.phase}", {"was": before.phase})

    def _standing(self, step: int) -> Standing | None:
        return self.rivals.standing(self.trial, step, self.state.spec.scheduler.name in POPULATIONS)

    def _write(
        self, event: Event, trial: TrialState, what: str, why: str, detail: Mapping[str, Any]
    ) -> None:
        self.lines.append(Line(event.time, trial.step, what, why, detail))


def _look(trial: TrialState) -> _Before:
    order = None if trial.order is None else trial.order.id
    saved = tuple(trial.checkpoints)
    return _Before(trial.state, order, trial.params, len(trial.lives), trial.attempts, saved)
