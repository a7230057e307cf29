"""The controller: turns events into orders and decisions, without I/O, a clock or Ray.

`apply` takes an event in, live or from the journal; the state changes nowhere else. `respond`
returns the events that follow from one that just happened, `next` the work for a free slot.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hposvc.controller import elasticity, moments, replication, stopping
from hposvc.controller.stopping import decided
from hposvc.errors import SpecError
from hposvc.events import (
    OUTRANKED,
    PATIENT,
    PRIORITY,
    QUEUE,
    RENEWALS,
    SLOTLESS,
    Attached,
    Closed,
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
    TrialAction,
)
from hposvc.schedulers import scheduler as facts
from hposvc.schedulers.early_stopping import EarlyStopping
from hposvc.schedulers.guarded import begin_scheduler
from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    NewTrial,
    Policy,
    Repeating,
    Scheduler,
    SearchDone,
    Wait,
)
from hposvc.spec import SweepSpec
from hposvc.spec.extension import accepted
from hposvc.spec.variants import already
from hposvc.state.replicates import common_seed
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.state.trial_table import LIMIT, report_of
from trainables.contract import Order

CHANGES = 1  # sets the generators of changes apart from those of proposals


@dataclass
class Controller:
    """The decisions of one sweep."""

    spec: SweepSpec  # as first recorded; `state.spec` has the present limits
    policy: Policy
    scheduler: Scheduler = field(init=False)
    early_stopping: EarlyStopping | None = field(init=False)  # None: no trial stops for its curve
    state: SweepState = field(init=False)
    facts_told: list[facts.Fact] = field(default_factory=list, init=False)  # to the scheduler
    # Orders whose slots are others' by the sweep's share: they end at their next rung.
    lost: Collection[int] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        spec = self.spec
        self.scheduler = begin_scheduler(spec.scheduler.name, self.policy, spec.plan)
        self.early_stopping = None if spec.plateau is None else EarlyStopping(spec.plateau)
        self.state = SweepState(spec)

    def apply(self, event: Event) -> None:
        """Apply an event to the state, and tell the scheduler the facts that follow from it."""
        new = self.state.apply(event)
        if isinstance(event, Requested) and event.verb in (*RENEWALS, *SLOTLESS):
            self._renew_scheduler(new)
        else:
            self.facts_told += new
            self._tell(new)
        if self.early_stopping is not None and isinstance(event, Reported) and new:
            trial = self.state.trials[event.trial]
            if trial.step == event.step:  # the report has the sweep's metric
                self.early_stopping.apply(report_of(trial, event.step))
        if (
            self.early_stopping is not None
            and isinstance(event, Ordered)
            and not event.order.replicate
        ):
            trial = self.state.trials[event.order.trial]
            if len(trial.segments) > 1 and trial.step == trial.segments[-1].after:
                # It goes on with other weights or values.
                self.early_stopping.restart(trial.id, trial.step)

    def _renew_scheduler(self, new: Sequence[facts.Fact]) -> None:
        """Begin a scheduler over the present plan, and tell it all facts that still hold.

        Trials that are back have not left: failed trials that are retried, and completed trials
        that can become longer. A sweep that takes new trials again is not closed.
        """
        back = {trial.id for trial in self.state.trials.values() if not trial.over}
        back |= {fact.trial for fact in new if isinstance(fact, facts.Paused | facts.Left)}

        def holds(fact: facts.Fact) -> bool:
            if isinstance(fact, facts.Closed):
                return self.state.closed is not None
            return not isinstance(fact, facts.Left) or fact.trial not in back

        self.facts_told = [*filter(holds, self.facts_told), *new]
        spec = self.state.spec
        self.scheduler = begin_scheduler(spec.scheduler.name, self.policy, spec.plan)
        self._tell(self.facts_told)

    def _tell(self, facts_told: Sequence[facts.Fact]) -> None:
        """Tell the scheduler facts; the losses of excluded trials are infinite to it.

        It hears that they were ordered, as a bracket is filled in the order of its trials. Those
        that are over have left, also if they could go on as trials become longer.
        """
        excluded = self.state.excluded
        for told in facts_told:
            fact = told
            if isinstance(fact, facts.Report) and fact.trial in excluded:
                losses = (math.inf,) * len(fact.losses)
                fact = replace(fact, loss=math.inf, losses=losses)
            elif isinstance(fact, facts.Paused) and fact.trial in excluded:
                fact = facts.Left(fact.trial) if self.state.trials[fact.trial].over else fact
            self.scheduler.apply(fact)

    @property
    def revision(self) -> str:
        """The scheduler's name, and the revision of its rules."""
        return f"{self.spec.scheduler.name} {getattr(self.policy, 'revision', 1)}"

    def accept(self, request: Requested) -> Requested:
        """Return the event to journal for a request: with the resulting limits, or refused.

        The request was checked when it was made; another one may have come before it.
        """
        state = self.state
        if request.verb == "propose":
            return replace(request, refused=state.refusal(request.changes))
        if request.verb == "admit":
            return replace(request, refused=already(state.spec.variants, request.changes))
        if request.verb != "extend":
            return request
        try:
            limits = accepted(state.spec, request.changes, len(state.trials))
        except SpecError as error:
            return replace(request, refused=f"{error}")
        return replace(request, changes=limits)

    def respond(self, event: Event) -> list[Event]:
        """Return the events that follow at once from an applied event; apply them in turn."""
        match event:
            case Reported():
                return self._answer(event)
            case Proposed() if len(self.state.trials) == self.state.spec.trials.max:
                return [Closed(event.time, "trials")]
            case Ended() | Failed():
                return self._follow(event)
            case StorageExhausted():
                return stopping.suspend_all(self.state, event.time, "storage")
            case Requested():
                return self._steer(event)
            case Attached():
                return self._catch_up(event.time)
        return []

    def next(self) -> Order | NewTrial | Wait | SearchDone:
        """Return the work for a free slot; the replicates follow when the search is over."""
        move = self._seek()
        return replication.step(self.state) if isinstance(move, SearchDone) else move

    def _seek(self) -> Order | NewTrial | Wait | SearchDone:
        """Return the search's work for a free slot; lost and failed orders come first."""
        state = self.state
        if self.halted or state.resting:
            return Wait() if state.searching() else SearchDone()
        if state.trials.waiting:
            trial = state.trials[next(iter(state.trials.waiting))]
            order = trial.next_order(state.next_order, trial.until, trial.milestones)
            return self._seeded(order)
        if (replicate := replication.beside(state)) is not None:
            return replicate
        move = self.scheduler.next()
        if isinstance(move, Advance):
            return self._seeded(self._advance(move))
        unfinished = state.searching() or state.trials.backing_off
        if isinstance(move, SearchDone) and (unfinished or replication.left_beside(state)):
            return Wait()
        return move

    def stop_hopeless(self, time: float) -> list[Event]:
        """Return the ends of paused trials that will never go on."""
        if self.halted or self.state.resting:
            return []
        trials = self.state.trials
        return [
            decided(time, trials[cut.trial], "stop", cut.reason, cut.detail)
            for cut in self.scheduler.trials_to_stop()
        ]

    @property
    def needed_slots(self) -> int:
        """How many orders can run at once from now on, if there are no new trials."""
        width = 0 if self.halted else self.scheduler.max_concurrency()
        trials, replicates = self.state.trials, self.state.replicates.trials
        needed = len(trials.orders) + len(trials.waiting) + len(trials.backing_off)
        beside = len(replicates.orders) + replication.left_beside(self.state)
        return max(max(width, needed) + beside, replication.needed_slots(self.state))

    def regrow(self, ranks: int, now: float) -> list[Event]:
        """Return the ends of orders whose trials go on faster with this many ranks, free now."""
        if self.halted or self.state.resting:
            return []
        return elasticity.regrow(self.state, ranks, now)

    def give_back(self, urgent: Collection[int], late: Collection[int], now: float) -> list[Event]:
        """Return the ends of orders whose slots others are to have before the next rung.

        Args:
            urgent: orders that a higher priority ends, after a save.
            late: orders that end at their next report, whose checkpoint loses nothing.
        """
        events: list[Event] = []
        for trial in self.state.running():
            if trial.order is None or trial.intent is not None or trial.awaiting is not None:
                continue
            if trial.order.id in urgent:
                events.append(decided(now, trial, "park", PRIORITY, OUTRANKED))
            elif trial.order.id in late:
                events.append(decided(now, trial, "park", QUEUE))
        return events

    @property
    def halted(self) -> bool:
        """Whether the sweep was ended early, so that nothing new starts."""
        return self.state.halted

    def expire(self, now: float) -> list[Event]:
        """Return the events due now: kills of trials that ignored a stop, timeouts, an exhausted
        budget, retries, moments to tell."""
        return [
            *self._enforce(now),
            *stopping.check_timeouts(self.state, now),
            *(RetryDue(now, name) for name in self.state.retries_due(now)),
            *stopping.check_budget(self.state, now),
            *replication.check_budget(self.state, now),
            *moments.due(self.state, now),
        ]

    def _enforce(self, now: float) -> list[Event]:
        grace_s = self.state.spec.failure.grace
        return [
            decided(now, trial, "kill", intent.reason if intent.kind == "stop" else "pause")
            for trial in self.state.running()
            if (intent := trial.intent) is not None and intent.reason not in PATIENT
            if not intent.killed and now - intent.time > grace_s
        ]

    def finish(self, now: float) -> Finished | Suspended:
        """Return the last event, once `next` has nothing left."""
        state = self.state
        return stopping.suspend(state, now) if state.resting else stopping.finish(state, now)

    def _advance(self, move: Advance) -> Order:
        """Return the order that continues a paused trial, with new values if it is to change."""
        state, change = self.state, move.change
        trial = state.trials[move.trial]
        order = trial.next_order(state.next_order, move.until, move.milestones)
        if change is None:
            return order
        source = trial if change.donor is None else state.trials[change.donor]
        rng = np.random.default_rng([self.state.spec.seed, state.next_order, CHANGES])
        params = change.values(self.state.spec.space, source.params, rng)
        if change.donor is None:  # a checkpoint amid a step belongs to the old values
            start, step, parent = trial.boundary_point
            return replace(order, params=params, start=start, first=step + 1, parent=parent)
        start, parent = state.checkpoints.offer(source)
        if start is None:  # its checkpoints were damaged: there is nothing to copy
            return order
        return replace(order, params=params, start=start, first=trial.step + 1, parent=parent)

    def _seeded(self, order: Order) -> Order:
        """Return the order with the random numbers that its trial is to repeat, or shares."""
        if self.state.spec.trials.seeds is not None:
            if self.state.trials[order.trial].together > 1:
                order = replication.together(order)
            return replace(order, seed_of=common_seed(0))
        if not isinstance(self.policy, Repeating):
            return order
        return replace(order, seed_of=self.policy.seeded_as(order.first))

    def _answer(self, event: Reported) -> list[Event]:
        trial = self.state.by_order(event.order)
        if trial is None or trial.intends("stop"):
            return []
        if trial.diverged:
            what = stopping.not_finite(event.metrics, self.state.spec.objectives, event.step)
            return [decided(event.time, trial, "stop", "diverged", what)]
        if broken := trial.broken(event.metrics):
            what = stopping.limits_broken(broken, event, self.state.spec.unit)
            return [decided(event.time, trial, "stop", LIMIT, what)]
        if trial.replicate_of is not None:
            if not self.state.replicates.is_seed(trial):
                return []  # no target, no scheduler: it is trained to its end
            return replication.stop_equal(trial, self.state.trials[event.trial], event.time)
        reached = stopping.check_target(self.state, trial, event.time)
        if reached or trial.intends("suspend") or trial.together > 1:
            return reached
        return self._judge(trial, event.time)

    def _follow(self, event: Ended | Failed) -> list[Event]:
        """Return what follows from the end of an order, for the sweep and for the trial."""
        trial = self.state.trials[event.trial]
        if isinstance(event, Failed) and (full := stopping.check_disk(self.state, event)):
            return full
        if failures := stopping.check_failures(self.state, event.time):
            return failures
        if self._is_due(trial) and not (self.halted or self.state.resting):
            return self._judge(trial, event.time)
        if isinstance(event, Ended) and (
            met := stopping.check_target(self.state, trial, event.time)
        ):
            return met
        return stopping.check_plateau(self.state, event.time) or stopping.check_worth(
            self.state, event.time
        )

    def _is_due(self, trial: TrialState) -> bool:
        """Return whether the decision at a milestone may be made without a running order."""
        if trial.together > 1:
            return trial.state == "PAUSED" and trial.awaiting is not None and trial.level
        return trial.id in self.state.trials.waiting

    def _judge(self, trial: TrialState, time: float) -> list[Event]:
        """Return the decision that a trial at a milestone waits for, or its early stop."""
        decision = None if trial.awaiting is None else self._judge_milestone(trial, trial.awaiting)
        if decision is None or decision.verdict == "continue":
            decision = self._judge_plateau(trial) or decision
        if decision is None:
            return []
        is_lost = trial.order is not None and trial.order.id in self.lost
        saved = any(saved.step == trial.step for saved in trial.usable())
        if decision.verdict == "continue" and is_lost and saved:
            # The decision is made when its order has ended, by what is known then.
            return [decided(time, trial, "park", QUEUE)]
        event = decided(time, trial, decision.verdict, decision.reason, decision.detail)
        if decision.reason == stopping.NO_CHECKPOINT and stopping.lacks_checkpoints(self.state):
            return [event, *stopping.halt(self.state, time, "failures")]
        return [event]

    def _judge_milestone(self, trial: TrialState, milestone: int) -> Decision:
        """Decide whether a trial passes a milestone."""
        if self.scheduler.copies and all(saved.step < milestone for saved in trial.usable()):
            scheduler = self.state.spec.scheduler.name
            detail = f"scheduler {scheduler} needs a checkpoint at each of its steps"
            return Decision("stop", stopping.NO_CHECKPOINT, detail)
        return self.scheduler.judge(report_of(trial, milestone))

    def _judge_plateau(self, trial: TrialState) -> Decision | None:
        """Return the early stop of a trial whose own curve no longer improves, if it is due."""
        if (
            self.early_stopping is None
            or trial.step == 0
            or trial.came_to(self.state.spec.last_step)
        ):
            return None
        return self.early_stopping.judge(trial.id, trial.step)

    def _steer(self, event: Requested) -> list[Event]:
        """Return what a request means for running trials; it was applied to the state already."""
        state, time = self.state, event.time
        if event.trial is not None:
            return self._steer_trial(event, state.trials.get(event.trial))
        match event.verb:
            case "stop" | "kill" if not state.finished:
                return stopping.halt(state, time, "user", event.verb)
            case "drain" if state.closed is None:
                return [Closed(time, "drain")]
            case "pause" if state.resting:
                return stopping.suspend_all(state, time, "pause")
            case "extend" | "retry" if not state.finished:
                return self._catch_up(time)
        return []

    def _steer_trial(self, event: Requested, trial: TrialState | None) -> list[Event]:
        if event.verb in ("retry", "include"):
            return []
        verdict: TrialAction = "kill" if event.verb == "kill" else "stop"
        return [] if trial is None else self._end_trial(trial.id, event.time, verdict)

    def _end_trial(self, name: str, time: float, verdict: TrialAction) -> list[Event]:
        """Return the ends of a trial and of its replicates, but for those that are over."""
        trial, replicates = self.state.trials[name], self.state.replicates.trials.running()
        ended = [] if trial.over else [trial]
        ended += [replicate for replicate in replicates if replicate.shown_as == name]
        return [decided(time, ending, verdict, "user") for ending in ended]

    def _catch_up(self, time: float) -> list[Event]:
        """Return the decisions that the previous driver had not made when it exited."""
        state = self.state
        if state.finished:
            return []
        events: list[Event] = []
        if state.asked in ("stop", "kill") and not self.halted:
            events += stopping.halt(state, time, "user")
        if state.asked == "drain" and state.closed is None:
            events.append(Closed(time, "drain"))
        trials = state.trials.values()
        for name in state.excluded:  # perhaps while no driver was at work
            events += self._end_trial(name, time, "stop")
        met = filter(None, (stopping.check_target(state, trial, time) for trial in trials))
        events += next(met, [])
        if len(state.trials) == state.spec.trials.max and state.closed is None:
            events.append(Closed(time, "trials"))
        undecided = (
            trial.id
            for trial in state.trials.running()  # in orders that outlived the driver before
            if trial.awaiting is not None and trial.intent is None
        )
        level = (trial.id for trial in state.trials.values() if trial.together > 1)
        due = [name for name in (*state.trials.waiting, *level) if self._is_due(state.trials[name])]
        for name in [*due, *undecided]:
            if name not in state.excluded:
                events += self._judge(state.trials[name], time)
        return events
