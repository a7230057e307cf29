"""Turns events into orders and decisions. No I/O, no clock, no Ray: a fold and a few questions.

`apply` takes an event in, live or from the journal; state changes nowhere else. `respond` says
what follows from an event that just happened, `next` what a free slot should do.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Literal

import numpy as np

from hposvc.events import (
    Attached,
    Closed,
    Decided,
    Event,
    Finished,
    Order,
    Ordered,
    Proposed,
    Reported,
    Requested,
    Verdict,
)
from hposvc.schedulers.plateau import Rests
from hposvc.schedulers.scheduler import (
    Advance,
    Decision,
    NewTrial,
    Over,
    Policy,
    Repeating,
    Scheduler,
    Wait,
)
from hposvc.spec import SweepSpec
from hposvc.state import SweepState, report_of
from hposvc.trial import TrialState

CHANGES = 1  # tells the generators of changes from those of proposals


@dataclass
class Controller:
    """One sweep's decisions."""

    spec: SweepSpec
    policy: Policy
    scheduler: Scheduler = field(init=False)
    rests: Rests | None = field(init=False)  # None: no trial is stopped for its own curve
    state: SweepState = field(init=False)

    def __post_init__(self) -> None:
        spec = self.spec
        self.scheduler = self.policy.scheduler(spec.plan)
        self.rests = None if spec.plateau is None else Rests(spec.plateau)
        self.state = SweepState(spec)

    def apply(self, event: Event) -> None:
        """Take an event into the state, and tell the scheduler what it means."""
        facts = self.state.apply(event)
        for fact in facts:
            self.scheduler.apply(fact)
        if self.rests is not None and isinstance(event, Reported) and facts:
            self.rests.apply(report_of(self.state.trials[event.trial], event.step))
        if self.rests is not None and isinstance(event, Ordered):
            self._begin_anew(self.state.trials[event.order.trial], self.rests)

    def _begin_anew(self, trial: TrialState, rests: Rests) -> None:
        """Other weights or values: what its own curve was before says nothing of them."""
        if len(trial.lives) > 1 and trial.step == trial.lives[-1].after:
            rests.restart(trial.id, trial.step)

    def respond(self, event: Event) -> list[Event]:
        """What follows at once from an event that was just applied, to be applied in turn."""
        match event:
            case Reported():
                return self._answer(event)
            case Proposed() if len(self.state.trials) == self.spec.trials.max:
                return [Closed(event.time, "trials")]
            case Requested():
                return self._steer(event)
            case Attached():
                return self._catch_up(event.time)
        return []

    def next(self) -> Order | NewTrial | Wait | Over:
        """What a free slot should do; orders that were lost or failed come first."""
        state = self.state
        if self.halted:
            return Wait() if state.orders else Over()
        if state.waiting:
            trial = state.trials[next(iter(state.waiting))]
            order = trial.next_order(state.next_order, trial.until, trial.milestones)
            return self._seeded(order)
        move = self.scheduler.next()
        if isinstance(move, Advance):
            return self._seeded(self._advance(move))
        if isinstance(move, Over) and state.orders:
            return Wait()
        return move

    def cut(self, time: float) -> list[Event]:
        """The end of paused trials that will never go on."""
        if self.halted:
            return []
        trials = self.state.trials
        return [
            _decided(time, trials[cut.trial], "stop", cut.reason, cut.detail)
            for cut in self.scheduler.cut()
        ]

    @property
    def width(self) -> int:
        """How many orders may be out at once from here on, if there are no new trials."""
        width = 0 if self.halted else self.scheduler.width()
        return max(width, len(self.state.orders) + len(self.state.waiting))

    @property
    def halted(self) -> bool:
        """Whether nothing new is to be started, because the sweep was ended before its time."""
        return self.state.closed in ("target", "budget", "user")

    def expire(self, now: float) -> list[Event]:
        """What is due by `now`: the end of trials that do not heed a stop, and of the budget."""
        return [*self._enforce(now), *self._spend(now)]

    def _enforce(self, now: float) -> list[Event]:
        grace_s = self.spec.failure.grace
        return [
            _decided(now, trial, "kill", "pause" if trial.stop is None else trial.stop[1])
            for trial in self.state.live()
            if trial.stop is not None or trial.yields
            if not trial.killed and now - trial.told_at > grace_s
        ]

    def _spend(self, now: float) -> list[Event]:
        wall_s = self.spec.budget.wall_s
        if wall_s is None or self.halted or self.state.started is None:
            return []
        spent_s = self.state.elapsed_s + max(0.0, now - self.state.now)
        return self._halt(now, "budget") if spent_s >= wall_s else []

    def finish(self, now: float) -> Finished:
        """The last event, when `next` says that it is over."""
        state = self.state
        if state.asked is not None:
            return Finished(now, "STOPPED", "user")
        if not state.front:
            beyond = any(trial.values and not trial.kept for trial in state.trials.values())
            reason = "no trial keeps the limits" if beyond else "no trial has a value"
            return Finished(now, "FAILED", reason)
        return Finished(now, "COMPLETED", state.closed or "")

    def _advance(self, move: Advance) -> Order:
        """The order that carries a paused trial on, with what becomes of its values."""
        state, change = self.state, move.change
        trial = state.trials[move.trial]
        order = trial.next_order(state.next_order, move.until, move.milestones)
        if change is None:
            return order
        source = trial if change.donor is None else state.trials[change.donor]
        rng = np.random.default_rng([self.spec.seed, state.next_order, CHANGES])
        params = change.values(self.spec.space, source.params, rng)
        if change.donor is None:  # a checkpoint within a step is of the values that it had
            start, step, parent = trial.whole
            return replace(order, params=params, start=start, first=step + 1, parent=parent)
        start, parent = state.shelf.offer(source)
        if start is None:  # what it had was damaged: there is nothing to copy
            return order
        return replace(order, params=params, start=start, first=trial.step + 1, parent=parent)

    def _seeded(self, order: Order) -> Order:
        """The order, with the random numbers that its trial is to repeat."""
        if not isinstance(self.policy, Repeating):
            return order
        return replace(order, seed_of=self.policy.seeded_as(order.first))

    def _answer(self, event: Reported) -> list[Event]:
        trial = self.state.trials[event.trial]
        if trial.order is None or trial.order.id != event.order or trial.stop is not None:
            return []
        if trial.diverged:
            return [_decided(event.time, trial, "stop", "diverged")]
        return self._reach(trial, event.time) or self._judge(trial, event.time)

    def _judge(self, trial: TrialState, time: float) -> list[Event]:
        """The decision that a trial at a milestone waits for, or the end of one at rest."""
        decision = None if trial.awaiting is None else self._pass(trial, trial.awaiting)
        if decision is None or decision.verdict == "continue":
            decision = self._rest(trial) or decision
        if decision is None:
            return []
        return [_decided(time, trial, decision.verdict, decision.reason, decision.detail)]

    def _pass(self, trial: TrialState, milestone: int) -> Decision:
        """Whether a trial passes a milestone."""
        if self.scheduler.copies and trial.checkpoint_at(milestone) is None:
            detail = f"scheduler {self.spec.scheduler.name} needs a checkpoint at each of its steps"
            return Decision("stop", "no checkpoint", detail)
        return self.scheduler.judge(report_of(trial, milestone))

    def _rest(self, trial: TrialState) -> Decision | None:
        """The end of a trial whose own curve has come to rest before its last step."""
        if self.rests is None or not 0 < trial.step < self.spec.last_step:
            return None
        return self.rests.judge(trial.id, trial.step)

    def _reach(self, trial: TrialState, time: float) -> list[Event]:
        """The end of the sweep, if a trial meets every target that there is."""
        targets = [metric.target is not None for metric in self.spec.objectives]
        if self.halted or not any(targets) or not math.isfinite(trial.loss):
            return []
        found = compress(zip(self.spec.objectives, trial.values, strict=True), targets)
        reached = all(metric.reached(value) for metric, value in found)
        return self._halt(time, "target") if reached else []

    def _steer(self, event: Requested) -> list[Event]:
        verdict: Verdict = "kill" if event.verb == "kill" else "stop"
        if event.trial is None:
            return self._halt(event.time, "user", verdict)
        trial = self.state.trials.get(event.trial)
        if trial is None or trial.over:
            return []
        return [_decided(event.time, trial, verdict, "user")]

    def _halt(
        self, time: float, reason: Literal["target", "budget", "user"], verdict: Verdict = "stop"
    ) -> list[Event]:
        stops = [
            _decided(time, trial, verdict, reason)
            for trial in self.state.live()
            if trial.stop is None or verdict == "kill"
        ]
        return [Closed(time, reason), *stops]

    def _catch_up(self, time: float) -> list[Event]:
        """What an earlier driver had still to say when it went."""
        state = self.state
        if state.finished:
            return []
        events: list[Event] = []
        if state.asked is not None and not self.halted:
            events += self._halt(time, "user")
        met = filter(None, (self._reach(trial, time) for trial in state.trials.values()))
        events += next(met, [])
        if len(state.trials) == self.spec.trials.max and state.closed is None:
            events.append(Closed(time, "trials"))
        for name in list(state.waiting):
            events += self._judge(state.trials[name], time)
        return events


def _decided(
    time: float, trial: TrialState, verdict: Verdict, reason: str, detail: str = ""
) -> Decided:
    order = None if trial.order is None else trial.order.id
    step = trial.step if trial.awaiting is None else trial.awaiting
    return Decided(time, trial.id, order, step, verdict, reason, detail)
