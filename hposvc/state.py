"""What is known of a sweep: a fold of its journal. `status`, `trials`, `best`, MLflow read this."""

from dataclasses import dataclass
from typing import Literal

from hposvc.events import (
    OWN,
    Attached,
    Checkpointed,
    Closed,
    Decided,
    Ended,
    Event,
    Failed,
    Finished,
    Order,
    Ordered,
    Proposed,
    Recalled,
    Reported,
    Requested,
)
from hposvc.phases import Phases
from hposvc.schedulers import scheduler as facts
from hposvc.trial import OVER, TrialState
from searchers.searcher import Observation

SweepPhase = Literal["QUEUED", "RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"]


@dataclass
class SweepState(Phases):
    """Everything that the journal says of a sweep."""

    state: SweepPhase = "QUEUED"
    reason: str = ""
    next_order: int = 1
    asked: Literal["stop", "kill"] | None = None  # what somebody wants of the whole sweep
    closed: str | None = None  # why there are no new trials any more
    earlier: tuple[Observation, ...] | None = None  # of other sweeps; None: not looked at yet
    waits: int = 0  # trials that a slot waited for
    waited_s: float = 0.0  # as long in all
    started: float | None = None  # None: no driver had it yet
    now: float = 0.0  # the last event's time
    elapsed_s: float = 0.0  # while a driver was at work

    def apply(self, event: Event) -> list[facts.Fact]:
        """Take an event in, and say what it means to a scheduler.

        Applying the same events gives the same state, always.
        """
        self._facts = []
        if isinstance(event, Attached):
            self._attach(event)
        self.elapsed_s += max(0.0, event.time - self.now)
        self.now = max(self.now, event.time)
        match event:
            case Requested(verb=verb, trial=None):
                self.asked = verb
            case Recalled(trials=trials):
                self.earlier = trials
            case Closed():
                self._close(event)
            case Finished():
                self._finish(event)
            case _:
                self._follow(event)
        return self._facts

    @property
    def finished(self) -> bool:
        """Whether the sweep is over."""
        return self.state in OVER

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that orders held, those of running ones up to the last event included."""
        seconds = sum(trial.seconds for trial in self.trials.values())
        seconds += sum(self.now - self.trials[name].ordered_at for name in self.orders.values())
        return seconds * self.spec.resources.workers * self.spec.resources.gpus_per_worker / 3600

    def _follow(self, event: Event) -> None:
        """Take in what happened to one trial."""
        match event:
            case Proposed():
                self._propose(event)
            case Ordered():
                self._order(event.order, event.time)
            case Checkpointed():
                self.shelf.take(self.trials[event.trial], event.order, event.saved)
            case Reported():
                self._report(event)
            case Decided():
                self._decide(event)
            case Ended():
                self._end(event)
            case Failed():
                self._fail(event)

    def _attach(self, event: Attached) -> None:
        for number, name in list(self.orders.items()):
            trial = self.trials[name]
            trial.seconds += max(0.0, self.now - trial.ordered_at)
            del self.orders[number]
            if trial.step >= trial.until:
                self._settle(trial)
            else:
                self._lose(trial)
        self.started = event.time if self.started is None else self.started
        self.now = event.time
        if not self.finished:
            self.state = "RUNNING"

    def _propose(self, event: Proposed) -> None:
        trial = TrialState(
            id=event.trial,
            objectives=self.spec.objectives,
            limits=self.spec.bounds,
            params=event.params,
            note=event.note,
            until=event.until,
            milestones=event.milestones,
            number=len(self.trials),
        )
        self.trials[trial.id] = trial
        self.waits += event.waited > 0
        self.waited_s += event.waited
        self.waiting[trial.id] = None
        self.counts["PENDING"] = self.counts.get("PENDING", 0) + 1
        self._changed.add(trial.id)
        self._observed[trial.id] = trial.observation()

    def _order(self, order: Order, time: float) -> None:
        trial = self.trials[order.trial]
        self.waiting.pop(trial.id, None)
        self.orders[order.id] = trial.id
        self.next_order = order.id + 1
        trial.begin(order, time)
        self.shelf.lend(trial)
        self._move(trial, "RUNNING")
        self._facts.append(facts.Ordered(trial.id, order.until))

    def _report(self, event: Reported) -> None:
        trial = self.trials[event.trial]
        if trial.order is None or trial.order.id != event.order:
            return  # a rank of a lost order that still speaks
        awaited = trial.awaiting
        if not trial.report(event.step, event.metrics):
            return
        self._changed.add(trial.id)
        heard = {event.step}
        if trial.awaiting is not None and trial.awaiting != awaited:
            heard.add(trial.awaiting)  # a milestone that was stepped over
        self._facts += [report_of(trial, step) for step in sorted(heard)]
        self._ranking.update(trial)
        self.shelf.tidy(trial)

    def _decide(self, event: Decided) -> None:
        trial = self.trials[event.trial]
        self.results += 1
        trial.awaiting = None
        trial.decided = max(trial.decided, event.step)
        if event.verdict == "pause":
            trial.until, trial.told_at = min(trial.until, event.step), event.time
            trial.yields = trial.order is not None
        elif event.verdict != "continue":
            self._end_by(trial, event)
        if trial.order is None and event.verdict != "continue":
            self._settle(trial)

    def _end_by(self, trial: TrialState, event: Decided) -> None:
        """It is told to end."""
        trial.killed = trial.killed or event.verdict == "kill"
        if trial.yields and event.reason == "pause":
            return  # only its order ends
        if trial.stop is None:
            trial.stop, trial.message = (event.verdict, event.reason), event.detail
            trial.told_at = event.time

    def _end(self, event: Ended) -> None:
        trial = self._release(event.order, event.time)
        if trial is not None:
            self._settle(trial)

    def _fail(self, event: Failed) -> None:
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        trial.message = event.message
        if event.damaged:
            self.shelf.discard(trial)
        done = trial.step >= trial.until
        if event.cause == "diverged" and not trial.yields:
            self._diverge(trial)
        told = trial.stop is not None or trial.diverged
        if told or (done and (trial.yields or event.cause not in OWN)):
            self._settle(trial)
            return
        cause, allowed = event.cause, self.spec.failure.retries(event.cause)
        again = not done and (allowed is None or trial.failures.get(cause, 0) < allowed)
        if cause == "oversize" and not again:
            cause = "oom"
        trial.failures[cause] = trial.failures.get(cause, 0) + 1
        if again:
            self._lose(trial)
        else:
            self._give_up(trial, cause)

    def _diverge(self, trial: TrialState) -> None:
        """It said so itself: to a scheduler the step under way is one that is not finite."""
        trial.diverged = True
        self._ranking.update(trial)
        if trial.step < trial.until:
            self._facts.append(report_of(trial, trial.step + 1))

    def _finish(self, event: Finished) -> None:
        waited = self.closed not in ("target", "budget", "user")
        for trial in self.trials.values():
            if not trial.over:
                trial.reason = "rung" if trial.state == "PAUSED" and waited else event.reason
                self._move(trial, "STOPPED")
                self.shelf.tidy(trial)
        self.waiting.clear()
        self.state, self.reason = event.state, event.reason

    def _close(self, event: Closed) -> None:
        if self.closed is None:
            self._facts.append(facts.Closed())
        # `trials` and `space` only end the proposing: what ends the sweep comes on top.
        if self.closed in (None, "trials", "space"):
            self.closed = event.reason


def report_of(trial: TrialState, step: int) -> facts.Report:
    """What a scheduler is told of a trial's last report, as it stands for a step."""
    losses = trial.last_losses
    return facts.Report(trial.id, step, losses[0], losses if len(losses) > 1 else ())
