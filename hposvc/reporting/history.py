"""The history of a sweep for charts: what its state forgets, such as the times of reports.

A fold of the journal's events, beside the sweep's state. The cost of an event is constant.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from hposvc.analysis.failure_words import LOST
from hposvc.analysis.parameter_effects import Explained, explained
from hposvc.events import (
    Attached,
    Decided,
    Ended,
    Event,
    Failed,
    Ordered,
    Placed,
    Proposed,
    Reported,
    Requested,
    error_line,
)
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialPhase, TrialState

# How an order ended that did not fail, by the phase of its trial after it.
ENDS: dict[TrialPhase, str] = {
    **{"COMPLETED": "completed", "PAUSED": "paused", "STOPPED": "stopped", "FAILED": "failed"},
    "PENDING": "suspended",
}


@dataclass(frozen=True)
class SlotSpan:
    """The time in which a trial held a slot: an order, from its start to its end.

    A lane is no device, but a place among the orders of the same time, the lowest
    that was free.
    """

    order: int
    trial: str
    replicate: int  # number of the finalist's replicate; 0: the trial itself
    workers: int
    first: int  # step
    start: float  # seconds, as events have them
    lane: int = 0
    device: str = ""  # model of the GPU, or of the CPU; empty: unknown
    node: str = ""
    again: bool = False  # whether it goes on after a failure, or after a driver was lost
    end: float | None = None  # None: it runs
    how: str = ""  # a value of ENDS, a cause of failure, or LOST; empty: it runs


@dataclass(frozen=True)
class Reading:
    """The first metric of a report that counted."""

    step: int
    time: float
    value: float


@dataclass(frozen=True)
class DrawnDecision:
    """A decision about a trial at a step, in the words of its scheduler or of a user."""

    step: int
    time: float
    verdict: str  # continue, pause, park, stop, kill
    reason: str
    detail: str


@dataclass(frozen=True)
class OrderFailure:
    """A failure of an order."""

    trial: str
    step: int
    time: float
    cause: str
    message: str  # the line that names the error
    again: bool = False  # whether the trial is tried again
    cost: float = 0.0  # of the order, in the history's unit of costs


@dataclass(frozen=True)
class Improvement:
    """The best trial and its value from a moment on, and what had been spent by then.

    It is worse than the one before if the best trial itself became worse, or failed.
    """

    trial: str
    value: float
    trials: int  # begun so far
    time: float
    cost: float  # in the history's unit of costs


@dataclass
class History:
    """A fold of all events of a sweep."""

    spec: SweepSpec  # with which the sweep began
    state: SweepState = field(init=False)
    spans: dict[int, SlotSpan] = field(default_factory=dict)  # by order
    readings: dict[str, list[Reading]] = field(default_factory=dict)  # by trial
    decisions: dict[str, list[DrawnDecision]] = field(default_factory=dict)  # by trial
    failures: list[OrderFailure] = field(default_factory=list)
    improvements: list[Improvement] = field(default_factory=list)  # none with several metrics
    waits: dict[str, float] = field(default_factory=dict)  # seconds for a proposal, by trial
    undriven: list[tuple[float, float]] = field(default_factory=list)  # times between two drivers
    spent: dict[str, float] = field(default_factory=dict)  # cost so far at a trial's last report
    started_trials: int = 0
    rank_s: float = 0.0  # of all orders so far
    busy: int = 0  # ranks at work
    lanes: int = 0  # the most orders at the same time
    # What models say of the results, made a little before; None: `explained` asks them.
    answers: Sequence[Explained] | None = None
    _latest: dict[str, Improvement] = field(default_factory=dict)  # as of a trial's last report
    _running: dict[int, SlotSpan] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)  # lanes, a heap
    _unlucky: set[str] = field(default_factory=set)  # trials whose last order failed or was lost

    def __post_init__(self) -> None:
        self.state = SweepState(self.spec)

    @classmethod
    def of(cls, spec: SweepSpec, events: Iterable[Event]) -> "History":
        """Return the history of these events.

        Args:
            spec: the spec with which the sweep began.
            events: all events of the sweep so far, in order.
        """
        history = cls(spec)
        for event in events:
            history.apply(event)
        return history

    @property
    def start(self) -> float:
        """The time at which the sweep began; 0 if no driver had it yet."""
        return self.state.started or 0.0

    def explained(self) -> Sequence[Explained]:
        """Return what models say of the results, for each metric; to fit them takes seconds."""
        if self.answers is not None:
            return self.answers
        return explained(self.state.spec, self.state.history())

    @property
    def cost_unit(self) -> str:
        """The unit of costs: GPU-hours, or worker-hours in a sweep without GPUs."""
        return "GPU-hours" if self.spec.resources.gpus_per_worker else "worker-hours"

    def cost(self, rank_s: float) -> float:
        """Return rank-seconds in the unit of costs."""
        return rank_s * (self.spec.resources.gpus_per_worker or 1) / 3600

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        order = None if isinstance(event, Ordered) else getattr(event, "order", None)
        trial = self.state.by_order(order)  # or replicate, that the event is about
        step, before = (0 if trial is None else trial.step), self.state.now
        if isinstance(event, Attached):
            self._attach(event)
        self.state.apply(event)
        self.rank_s += self.busy * max(0.0, self.state.now - before)
        match event:
            case Proposed() if event.waited > 0:
                self.waits[event.trial] = event.waited
            case Ordered():
                self._begin(event)
            case Placed() if event.order in self._running:
                span = replace(self._running[event.order], device=event.device, node=event.node)
                self.spans[event.order] = self._running[event.order] = span
            case Ended() if trial is not None:
                self._end(event.order, event.time, ENDS.get(trial.state, ""))
                self._note_pause(trial, event.time)
            case Failed() if trial is not None:
                self._fail(event, trial, step)
            case Decided() if trial is None or trial.replicate_of is None:
                decided = DrawnDecision(
                    event.step, event.time, event.verdict, event.reason, event.detail
                )
                self.decisions.setdefault(event.trial, []).append(decided)
            case Reported() if trial is not None and trial.step > step:
                self._report(event, trial)
            case Requested(verb="exclude" | "include") if not self.spec.several:
                self._find_bests()
        self._follow_best()

    def _begin(self, event: Ordered) -> None:
        order = event.order
        workers = order.workers or self.state.spec.resources.ranks
        if not order.replicate and order.trial not in self.readings:
            self.readings[order.trial] = []
            self.started_trials += 1
        if self._free:
            lane = heapq.heappop(self._free)
        else:
            lane, self.lanes = self.lanes, self.lanes + 1
        self.spans[order.id] = self._running[order.id] = SlotSpan(
            order=order.id,
            trial=order.trial,
            replicate=order.replicate,
            workers=workers,
            first=order.first,
            start=event.time,
            lane=lane,
            again=not order.replicate and order.trial in self._unlucky,
        )
        self._unlucky.discard(order.trial)
        self.busy += workers

    def _end(self, order: int, time: float, how: str) -> None:
        span = self._running.pop(order, None)
        if span is not None:
            self.spans[order] = replace(span, end=max(time, span.start), how=how)
            heapq.heappush(self._free, span.lane)
            self.busy -= span.workers

    def _attach(self, event: Attached) -> None:
        """End the orders of the driver before, when it was last heard of."""
        before = self.state.now
        for order in [order for order in self._running if order not in event.kept]:
            self._unlucky.add(self._running[order].trial)
            self._end(order, before, LOST)
        if self.state.started is not None and event.time > before:
            self.undriven.append((before, event.time))

    def _fail(self, event: Failed, trial: TrialState, step: int) -> None:
        self._end(event.order, event.time, event.cause)
        span, again = self.spans.get(event.order), trial.state == "PENDING"
        rank_s = 0.0 if span is None else max(0.0, event.time - span.start) * span.workers
        line = error_line(event.message)
        self.failures.append(
            OrderFailure(event.trial, step, event.time, event.cause, line, again, self.cost(rank_s))
        )
        if again:
            self._unlucky.add(event.trial)

    def _note_pause(self, trial: TrialState, time: float) -> None:
        """Note that a trial waits at a rung, if no decision said so."""
        if trial.state != "PAUSED" or trial.replicate_of is not None:
            return
        decisions = self.decisions.setdefault(trial.id, [])
        if not decisions or (decisions[-1].verdict, decisions[-1].step) != ("pause", trial.step):
            decisions.append(
                DrawnDecision(trial.step, time, "pause", "rung", "it waits at its rung")
            )

    def _report(self, event: Reported, trial: TrialState) -> None:
        if trial.replicate_of is None:
            reading = Reading(event.step, event.time, trial.curve[-1][1])
            self.readings.setdefault(trial.id, []).append(reading)
            cost = self.spent[trial.id] = self.cost(self.rank_s)
            latest = Improvement(trial.id, reading.value, self.started_trials, event.time, cost)
            self._latest[trial.id] = latest

    def _find_bests(self) -> None:
        """Find the best values so far anew, by the trials' last reports: others count now."""
        trials = [self.state.trials[name] for name in self._latest]
        valued = [trial for trial in trials if trial.value is not None and trial.kept]
        ended = [trial for trial in valued if trial.at_end] or valued
        self.improvements, lowest = [], math.inf
        for trial in sorted(ended, key=lambda trial: self._latest[trial.id].time):
            if trial.loss < lowest and trial.value is not None:
                lowest, latest = trial.loss, self._latest[trial.id]
                self.improvements.append(replace(latest, value=trial.value))

    def _follow_best(self) -> None:
        """Note a change of the best trial, or of its value."""
        best = None if self.spec.several else next(iter(self.state.trials.best()), None)
        value = None if best is None else self.state.trials[best].value
        if best is None or value is None:
            return
        last = self.improvements[-1] if self.improvements else None
        if last is None or (last.trial, last.value) != (best, value):
            cost, now = self.cost(self.rank_s), self.state.now
            self.improvements.append(Improvement(best, value, self.started_trials, now, cost))
