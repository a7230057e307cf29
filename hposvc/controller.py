"""Turns events into orders and decisions. No I/O, no clock, no Ray: a fold and a few questions.

`apply` takes an event in, live or from the journal; state changes nowhere else. `respond` says
what follows from an event that just happened, `next` what a free slot should do.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from hposvc import ending, repeating, widening
from hposvc.ending import decided
from hposvc.events import (
    WIDER,
    Attached,
    Closed,
    Cooled,
    Ended,
    Event,
    Failed,
    Finished,
    Full,
    Order,
    Ordered,
    Proposed,
    Reported,
    Requested,
    Rested,
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
from hposvc.state import SweepState
from hposvc.steered import report_of
from hposvc.trial import TrialState

CHANGES = 1  # tells the generators of changes from those of proposals


@dataclass
class Controller:
    """One sweep's decisions."""

    spec: SweepSpec  # as it was first; `state.spec` is the present one
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
        if self.rests is not None and isinstance(event, Ordered) and not event.order.repeat:
            self._begin_anew(self.state.trials[event.order.trial], self.rests)

    def _begin_anew(self, trial: TrialState, rests: Rests) -> None:
        """Other weights or values: what its own curve was before says nothing of them."""
        if len(trial.lives) > 1 and trial.step == trial.lives[-1].after:
            rests.restart(trial.id, trial.step)

    def respond(self, event: Event) -> list[Event]:
        """What follows at once from an event that was just applied, to be applied in turn."""
        match event:
            case Reported() if event.order in self.state.finals.out:
                return repeating.answer(self.state, event)
            case Reported():
                return self._answer(event)
            case Proposed() if len(self.state.trials) == self.state.spec.trials.max:
                return [Closed(event.time, "trials")]
            case Ended() | Failed():
                return self._follow(event)
            case Full():
                return ending.park(self.state, event.time, "storage")
            case Requested():
                return self._steer(event)
            case Attached():
                return self._catch_up(event.time)
        return []

    def next(self) -> Order | NewTrial | Wait | Over:
        """What a free slot should do; when the search is over, the finals follow."""
        move = self._seek()
        return repeating.step(self.state) if isinstance(move, Over) else move

    def _seek(self) -> Order | NewTrial | Wait | Over:
        """What the search would have it do; orders that were lost or failed come first."""
        state = self.state
        if self.halted or state.resting:
            return Wait() if state.orders else Over()
        if state.waiting:
            trial = state.trials[next(iter(state.waiting))]
            order = trial.next_order(state.next_order, trial.until, trial.milestones)
            return self._seeded(order)
        move = self.scheduler.next()
        if isinstance(move, Advance):
            return self._seeded(self._advance(move))
        if isinstance(move, Over) and (state.orders or state.cooling):
            return Wait()
        return move

    def cut(self, time: float) -> list[Event]:
        """The end of paused trials that will never go on."""
        if self.halted or self.state.resting:
            return []
        trials = self.state.trials
        return [
            decided(time, trials[cut.trial], "stop", cut.reason, cut.detail)
            for cut in self.scheduler.cut()
        ]

    @property
    def width(self) -> int:
        """How many orders may be out at once from here on, if there are no new trials."""
        width = 0 if self.halted else self.scheduler.width()
        state = self.state
        needed = len(state.orders) + len(state.waiting) + len(state.cooling)
        return max(max(width, needed) + len(state.finals.out), repeating.width(state))

    def widen(self, ranks: int, now: float) -> list[Event]:
        """The end of orders whose trials go on faster with so many ranks, which are free now."""
        if self.halted or self.state.resting:
            return []
        return widening.widen(self.state, ranks, now)

    @property
    def halted(self) -> bool:
        """Whether nothing new is to be started, because the sweep was ended before its time."""
        return self.state.halted

    def expire(self, now: float) -> list[Event]:
        """What is due by `now`: who does not heed, or ran too long, the budget, the next tries."""
        due: list[Event] = [
            Cooled(now, name) for name, at in self.state.cooling.items() if at <= now
        ]
        due += ending.spend(self.state, now) + repeating.expire(self.state, now)
        return [*self._enforce(now), *ending.overrun(self.state, now), *due]

    def _enforce(self, now: float) -> list[Event]:
        grace_s = self.state.spec.failure.grace
        return [
            decided(now, trial, "kill", "pause" if trial.stop is None else trial.stop[1])
            for trial in self.state.live()
            if trial.stop is not None or trial.yields or trial.parked not in ("", WIDER)
            if not trial.killed and now - trial.told_at > grace_s
        ]

    def finish(self, now: float) -> Finished | Rested:
        """The last event, when `next` says that it is over."""
        state = self.state
        return ending.rest(state, now) if state.resting else ending.finish(state, now)

    def _advance(self, move: Advance) -> Order:
        """The order that carries a paused trial on, with what becomes of its values."""
        state, change = self.state, move.change
        trial = state.trials[move.trial]
        order = trial.next_order(state.next_order, move.until, move.milestones)
        if change is None:
            return order
        source = trial if change.donor is None else state.trials[change.donor]
        rng = np.random.default_rng([self.state.spec.seed, state.next_order, CHANGES])
        params = change.values(self.state.spec.space, source.params, rng)
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
            return [decided(event.time, trial, "stop", "diverged")]
        reached = ending.reach(self.state, trial, event.time)
        if reached or trial.parked:
            return reached
        return self._judge(trial, event.time)

    def _follow(self, event: Ended | Failed) -> list[Event]:
        """What an order's end means for the sweep, and for a trial that only lost its slot."""
        trial = self.state.trials[event.trial]
        if isinstance(event, Failed) and (full := ending.fill(self.state, event)):
            return full
        if trial.id in self.state.waiting and not (self.halted or self.state.resting):
            return self._judge(trial, event.time)
        return ending.despair(self.state, event.time)

    def _judge(self, trial: TrialState, time: float) -> list[Event]:
        """The decision that a trial at a milestone waits for, or the end of one at rest."""
        decision = None if trial.awaiting is None else self._pass(trial, trial.awaiting)
        if decision is None or decision.verdict == "continue":
            decision = self._rest(trial) or decision
        if decision is None:
            return []
        return [decided(time, trial, decision.verdict, decision.reason, decision.detail)]

    def _pass(self, trial: TrialState, milestone: int) -> Decision:
        """Whether a trial passes a milestone."""
        if self.scheduler.copies and trial.checkpoint_at(milestone) is None:
            scheduler = self.state.spec.scheduler.name
            detail = f"scheduler {scheduler} needs a checkpoint at each of its steps"
            return Decision("stop", "no checkpoint", detail)
        return self.scheduler.judge(report_of(trial, milestone))

    def _rest(self, trial: TrialState) -> Decision | None:
        """The end of a trial whose own curve has come to rest before its last step."""
        if self.rests is None or not 0 < trial.step < self.state.spec.last_step:
            return None
        return self.rests.judge(trial.id, trial.step)

    def _steer(self, event: Requested) -> list[Event]:
        """What a request means for what runs; the state has taken it in."""
        state, time = self.state, event.time
        if event.trial is not None:
            return self._steer_trial(event, state.trials.get(event.trial))
        match event.verb:
            case "stop" | "kill" if not state.finished:
                return ending.halt(state, time, "user", event.verb)
            case "drain" if state.closed is None:
                return [Closed(time, "drain")]
            case "pause" if state.resting:
                return ending.park(state, time, "pause")
            case "extend" | "retry" if not state.finished:
                return self._catch_up(time)
        return []

    def _steer_trial(self, event: Requested, trial: TrialState | None) -> list[Event]:
        if event.verb == "retry":
            return []
        verdict: Verdict = "kill" if event.verb == "kill" else "stop"
        if trial is None:
            return []
        repeats = self.state.finals.words(event.time, verdict, "user", trial.id)
        if trial.over:
            return [*repeats]
        return [decided(event.time, trial, verdict, "user"), *repeats]

    def _catch_up(self, time: float) -> list[Event]:
        """What an earlier driver had still to say when it went."""
        state = self.state
        if state.finished:
            return []
        events: list[Event] = []
        if state.asked in ("stop", "kill") and not self.halted:
            events += ending.halt(state, time, "user")
        if state.asked == "drain" and state.closed is None:
            events.append(Closed(time, "drain"))
        met = filter(None, (ending.reach(state, one, time) for one in state.trials.values()))
        events += next(met, [])
        if len(state.trials) == state.spec.trials.max and state.closed is None:
            events.append(Closed(time, "trials"))
        for name in list(state.waiting):
            events += self._judge(state.trials[name], time)
        return events
