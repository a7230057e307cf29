"""What is known of a sweep: a fold of its journal. `status`, `trials`, `best`, MLflow read this."""

from dataclasses import dataclass, replace

from hposvc.events import (
    OWN,
    Attached,
    Checkpointed,
    Closed,
    Cooled,
    Decided,
    Described,
    Ended,
    Event,
    Failed,
    Finished,
    Full,
    Order,
    Ordered,
    Proposed,
    Recalled,
    Reported,
    Requested,
    Rested,
)
from hposvc.patience import wait_s
from hposvc.schedulers import scheduler as facts
from hposvc.steered import Steered, report_of
from hposvc.trial import TrialState
from searchers.searcher import Observation


@dataclass
class SweepState(Steered):
    """Everything that the journal says of a sweep."""

    next_order: int = 1
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
        if self.driven and not self.finished:
            self.elapsed_s += max(0.0, event.time - self.now)
        self.now = max(self.now, event.time)
        match event:
            case Requested():
                self._steer(event)
            case Recalled(trials=trials):
                self.earlier = trials
            case Described():
                self.trials[event.trial].describe(event.data)
            case Closed():
                self._close(event)
            case Full():
                self._fill(event)
            case Rested():
                self._rest(event)
            case Finished():
                self._finish(event)
            case _:
                self._follow(event)
        return self._facts

    @property
    def rank_s(self) -> float:
        """Seconds that orders held ranks, those of running ones up to the last event."""
        return self.rank_s_at(self.now)

    def rank_s_at(self, time: float) -> float:
        """The same up to some time, which may be later than the last event."""
        held = sum(trial.rank_s_at(time) - trial.rank_s for trial in self.live())
        return self.ended_s + self.finals.rank_s_at(time) + held

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that orders held, those of running ones up to the last event included."""
        return self.rank_s * self.spec.resources.gpus_per_worker / 3600

    def _follow(self, event: Event) -> None:
        """Take in what happened to one trial, or to a repeat of it."""
        match event:
            case Checkpointed() | Reported() | Decided() | Ended() | Failed() if (
                event.order in self.finals.out
            ):
                self.finals.apply(event, self.spec)
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
            case Cooled():
                self._cool(event)

    def _attach(self, event: Attached) -> None:
        for number, name in list(self.orders.items()):
            trial = self.trials[name]
            self._charge(trial, self.now)
            del self.orders[number]
            if trial.step >= trial.until:
                self._settle(trial)
            else:
                self._lose(trial)
        self.finals.lose(self.spec.last_step, self.now)
        self.waiting |= dict.fromkeys(self.cooling)  # what they waited for may be over
        self.cooling.clear()
        self.started = event.time if self.started is None else self.started
        self.now, self.driven = event.time, True
        self.asked, self.full = None if self.asked == "pause" else self.asked, ""
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
        self._changed.add(trial.id)
        self._observed.append(trial.observation())

    def _order(self, order: Order, time: float) -> None:
        self.next_order = order.id + 1
        if not order.workers:
            order = replace(order, workers=self.spec.resources.ranks)
        if order.repeat:
            self._repeat(order, time)
            return
        trial = self.trials[order.trial]
        self.waiting.pop(trial.id, None)
        self.orders[order.id] = trial.id
        trial.begin(order, time)
        self.shelf.lend(trial)
        self._move(trial, "RUNNING")
        self._facts.append(facts.Ordered(trial.id, order.until, order.params))

    def _repeat(self, order: Order, time: float) -> None:
        options = self.spec.finalists
        assert options is not None  # else nobody orders one
        self.finals.begin(self.leaders(options.top), options.seeds)
        self.finals.order(order, time)

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
        if event.verdict == "park":
            trial.parked = "" if trial.order is None else event.reason
            trial.told_at = event.time
            return
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
        if (trial.yields or trial.parked) and event.reason == "pause":
            return  # only its order ends
        if trial.stop is None:
            trial.stop, trial.message = (event.verdict, event.reason), event.detail
            trial.told_at = event.time
            trial.halted = trial.state if event.whole else None

    def _end(self, event: Ended) -> None:
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        if trial.parked and trial.step < trial.until:
            self._lose(trial)
        else:
            self._settle(trial)

    def _fail(self, event: Failed) -> None:
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        if event.cause != "storage":  # which is the sweep's trouble, and not the trial's
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
        if event.cause == "storage" or (trial.parked and event.cause not in OWN):
            self._lose(trial)  # nobody's fault; or its slot was to be taken from it
            return
        cause, allowed = event.cause, self.spec.failure.retries(event.cause)
        again = not done and (allowed is None or trial.failures.get(cause, 0) < allowed)
        if cause == "oversize" and not again:
            cause = "oom"
        trial.failures[cause] = trial.failures.get(cause, 0) + 1
        if not again:
            self._give_up(trial, cause)
            return
        self._lose(trial)
        wait = wait_s(cause, trial.failures[cause])
        if wait and trial.id in self.waiting:
            del self.waiting[trial.id]
            self.cooling[trial.id] = event.time + wait

    def _diverge(self, trial: TrialState) -> None:
        """It said so itself: to a scheduler the step under way is one that is not finite."""
        trial.diverged = True
        self._ranking.update(trial)
        if trial.step < trial.until:
            self._facts.append(report_of(trial, trial.step + 1))
