"""The state of a sweep: a fold of its journal, which all views and MLflow read."""

from dataclasses import dataclass, replace
from typing import Literal

from hposvc.events import (
    OWN,
    Attached,
    Checkpointed,
    Closed,
    Decided,
    Described,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
    Requested,
    RetryDue,
    StorageExhausted,
    Suspended,
    WarmStarted,
    error_line,
)
from hposvc.schedulers import scheduler as facts
from hposvc.state.backoff import wait_s
from hposvc.state.lifecycle import SweepLifecycle, report_of
from hposvc.state.trial import Intent, TrialState
from searchers.searcher import Observation
from trainables.order import Order


@dataclass
class SweepState(SweepLifecycle):
    """Everything that the journal says about a sweep."""

    next_order: int = 1
    earlier: tuple[Observation, ...] | None = None  # of other sweeps; None: not read yet
    waits: int = 0  # proposals that a slot waited for
    waited_s: float = 0.0  # seconds of these waits
    started: float | None = None  # None: no driver had it yet
    now: float = 0.0  # the last event's time
    elapsed_s: float = 0.0  # with a driver at work
    reported: bool = False  # whether any trial ever reported
    scheduler: str = ""  # name and revision of the last driver's; empty: it did not say
    queued_s: float = 0.0  # of these seconds, before its first order: no slot was ready
    queued: bool = False  # whether a driver is at work that has given no order yet

    def apply(self, event: Event) -> list[facts.Fact]:
        """Apply an event, and return the facts for the scheduler.

        The same events give the same state under every later version: nothing here validates,
        imports or depends on the rules of today.
        """
        self._facts = []
        if isinstance(event, Attached):
            self._attach(event)
        if self.driven and not self.finished:
            passed_s = max(0.0, event.time - self.now)
            self.elapsed_s += passed_s
            self.queued_s += passed_s * self.queued
        self.now = max(self.now, event.time)
        match event:
            case Requested():
                self._steer(event)
            case WarmStarted(trials=trials):
                self.earlier = trials
            case Described():
                self.trials[event.trial].describe(event.data)
            case Closed():
                self._close(event)
            case StorageExhausted():
                self._fill(event)
            case Suspended():
                self._rest(event)
            case Finished():
                self._finish(event)
            case _:
                self._follow(event)
        return self._facts

    @property
    def worked_s(self) -> float:
        """Return for how long drivers were at work, without the time they waited for a slot."""
        return self.elapsed_s - self.queued_s

    @property
    def rank_s(self) -> float:
        """Rank-seconds of all orders, of running ones up to the last event."""
        return self.rank_s_at(self.now)

    def rank_s_at(self, time: float) -> float:
        """Return the rank-seconds up to a time, which may be later than the last event."""
        held = sum(trial.rank_s_at(time) - trial.rank_s for trial in self.live())
        return self.ended_s + self.replicates.rank_s_at(time) + held

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all orders, of running ones up to the last event."""
        return self.rank_s * self.spec.resources.gpus_per_worker / 3600

    def _follow(self, event: Event) -> None:
        """Apply an event of one trial, or of a replicate of it."""
        match event:
            case Checkpointed() | Reported() | Decided() | Ended() | Failed() if (
                event.order in self.replicates.out
            ):
                self.replicates.apply(event, self.spec)
            case Proposed():
                self._propose(event)
            case Ordered():
                self._order(event.order, event.time)
            case Checkpointed():
                self.checkpoints.take(self.trials[event.trial], event.order, event.saved)
            case Reported():
                self._report(event)
            case Decided():
                self._decide(event)
            case Ended():
                self._end(event)
            case Failed():
                self._fail(event)
            case RetryDue():
                self._cool(event)

    def _attach(self, event: Attached) -> None:
        for number, name in list(self.orders.items()):
            trial = self.trials[name]
            self._charge(trial, self.now)
            del self.orders[number]
            if trial.done:
                self._settle(trial)
            else:
                self._lose(trial)
        self.replicates.lose(self.spec.last_step, self.now)
        self.waiting |= dict.fromkeys(self.backing_off)  # the cause of a backoff may be over
        self.backing_off.clear()
        self.started = event.time if self.started is None else self.started
        self.now, self.driven, self.queued = event.time, True, True
        self.scheduler = event.scheduler
        if event.resumes and self.asked == "pause":
            self.asked = None
        self.full = ""
        if not self.finished:
            self.state, self.reason = "RUNNING", ""

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
        self.heights[0] += 1
        self._changed.add(trial.id)
        self._observed.append(trial.observation())

    def _order(self, order: Order, time: float) -> None:
        self.next_order, self.queued = order.id + 1, False
        if not order.workers:
            order = replace(order, workers=self.spec.resources.ranks)
        if order.repeat:
            self._repeat(order, time)
            return
        trial = self.trials[order.trial]
        self.waiting.pop(trial.id, None)
        self.orders[order.id] = trial.id
        trial.begin(order, time)
        self.checkpoints.lend(trial)
        self._move(trial, "RUNNING")
        self._facts.append(facts.Ordered(trial.id, order.until, order.params))

    def _repeat(self, order: Order, time: float) -> None:
        options = self.spec.finalists
        assert options is not None  # otherwise there are no replicates
        self.replicates.begin(self.leaders(options.top), options.seeds)
        self.replicates.order(order, time)

    def _report(self, event: Reported) -> None:
        trial = self.trials[event.trial]
        if trial.order is None or trial.order.id != event.order:
            return  # from a rank of a lost order that still runs
        awaited, before = trial.awaiting, trial.step
        if not trial.report(event.step, event.metrics):
            return
        self.heights[before] -= 1
        self.heights[trial.step] += 1
        self._changed.add(trial.id)
        self.reported = True
        steps = {event.step}
        if trial.awaiting is not None and trial.awaiting != awaited:
            steps.add(trial.awaiting)  # a milestone that was stepped over
        self._facts += [report_of(trial, step) for step in sorted(steps)]
        self._ranking.update(trial)
        self.checkpoints.tidy(trial)

    def _decide(self, event: Decided) -> None:
        trial = self.trials[event.trial]
        if event.verdict == "park":
            if trial.order is not None and not trial.intends("stop"):
                # A trial that yields keeps yielding: its steps are done.
                kind: Literal["yield", "suspend"] = "yield" if trial.intends("yield") else "suspend"
                trial.intent = Intent(kind, "park", event.reason, event.time)
            return
        self.results += 1
        trial.awaiting = None
        trial.decided = max(trial.decided, event.step)
        if event.verdict == "pause":
            trial.until = event.step if trial.until is None else min(trial.until, event.step)
            if trial.order is not None:
                trial.intent = Intent("yield", "pause", event.reason, event.time)
        elif event.verdict != "continue":
            self._end_by(trial, event)
        if trial.order is None and event.verdict != "continue":
            self._settle(trial)

    def _end_by(self, trial: TrialState, event: Decided) -> None:
        """Apply a decision that ends a trial, or only its order."""
        killed = event.verdict == "kill"
        if trial.intent is not None and (trial.intends("stop") or event.reason == "pause"):
            # The first stop stands. A kill in a pause ends only the order.
            trial.intent = replace(trial.intent, killed=trial.intent.killed or killed)
            return
        trial.message = event.detail
        ended_from = trial.state if event.whole else None
        trial.intent = Intent("stop", event.verdict, event.reason, event.time, killed, ended_from)

    def _end(self, event: Ended) -> None:
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        if trial.until is None:
            was_told = trial.intends("stop") or trial.intends("suspend")
            trial.returned = event.how == "returned" or not was_told
        if trial.intends("suspend") and not trial.done:
            self._lose(trial)
        else:
            self._settle(trial)

    def _fail(self, event: Failed) -> None:
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        if event.cause != "storage":  # a full disk is a problem of the sweep, not of the trial
            trial.message = event.message
        if event.damaged:
            self.checkpoints.discard(trial)
        done = trial.done
        if event.cause == "diverged" and not trial.intends("yield"):
            self._diverge(trial)
        ending = trial.intends("stop") or trial.diverged
        if ending or (done and (trial.intends("yield") or event.cause not in OWN)):
            self._settle(trial)
            return
        if event.cause == "storage" or (trial.intends("suspend") and event.cause not in OWN):
            self._lose(trial)  # not the trial's fault, or its slot was to be taken anyway
            return
        cause, allowed = event.cause, self.spec.failure.retries(event.cause)
        over = done or (event.whole and not self.reported)
        again = not over and (allowed is None or trial.failures.get(cause, 0) < allowed)
        if cause == "oversize" and not again:
            cause = "oom"
        trial.failures[cause] = trial.failures.get(cause, 0) + 1
        if not again:
            self._compare(trial, event)
            self._give_up(trial, cause)
            return
        self._lose(trial)
        wait = wait_s(cause, trial.failures[cause])
        if wait and trial.id in self.waiting:
            del self.waiting[trial.id]
            self.backing_off[trial.id] = event.time + wait

    def _compare(self, trial: TrialState, event: Failed) -> None:
        """Count trials that failed for good with the same error before any trial reported."""
        if self.reported or event.cause != "user":
            return
        self.lacks_metric = self.lacks_metric or event.whole
        line = error_line(event.message).replace(trial.id, "")  # an error may name its trial
        self.alike[line] += 1
        self.most_alike = max(self.most_alike, self.alike[line])

    def _diverge(self, trial: TrialState) -> None:
        """Apply the trainable's own word that it diverged: count this step as an infinite loss."""
        trial.diverged = True
        self._ranking.update(trial)
        if not trial.done:
            self._facts.append(report_of(trial, trial.step + 1))
