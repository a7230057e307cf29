"""What is known of one trial: a fold of its events."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hposvc.events import Order
from hposvc.spec import Limit, Metric
from searchers.searcher import Observation
from searchers.space import Params
from trainables.checkpoints.checkpoint import Saved
from trainables.dataset import DataSet

TrialPhase = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"]
OVER: frozenset[TrialPhase] = frozenset({"COMPLETED", "STOPPED", "FAILED"})


@dataclass(frozen=True)
class Life:
    """A stretch of a trial's steps with the same values, from one checkpoint on.

    A trial that copies another (an exploit of PBT) or changes its values begins a new one.
    """

    params: Params
    after: int  # the last step before it, on the trial's own clock
    parent: str | None = None  # the trial that `start` is of; None: it is this trial's own
    start: Saved | None = None  # None: from nothing


def trial_name(number: int) -> str:
    """What the n-th trial of a sweep is called, from 1."""
    return f"t{number:04d}"


@dataclass
class TrialState:
    """One trial. Values are as the user reports them; losses are signed so that lower is better."""

    id: str
    objectives: tuple[Metric, ...]  # one, or several
    params: Params  # the present ones
    note: Mapping[str, Any]
    until: int  # where its present or next order ends
    milestones: tuple[int, ...]
    number: int  # in the order proposed
    limits: tuple[Limit, ...] = ()
    state: TrialPhase = "PENDING"
    reason: str = ""
    order: Order | None = None  # the order that a slot has
    ordered_at: float = 0.0
    curves: dict[str, list[tuple[int, float]]] = field(init=False)  # by metric, as reported
    steps: dict[int, float] = field(default_factory=dict)  # the first metric's curve, by step
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last report's
    best: tuple[int, float, Mapping[str, float]] | None = None  # step, first loss, metrics
    diverged: bool = False
    awaiting: int | None = None  # the milestone that it stands at, undecided
    decided: int = 0  # the last milestone at which it may go on
    stop: tuple[str, str] | None = None  # verdict and reason, once it is told to end
    yields: bool = False  # it was told to pause, and its order is still out
    parked: str = ""  # why the same, where it needs another order then; empty: it does not
    halted: TrialPhase | None = None  # what it was when its sweep was ended; None: it was not so
    told_at: float = 0.0  # when it was told
    killed: bool = False  # it was not waited for
    data: tuple[DataSet, ...] = ()  # the samples that it has, if its trainable told
    checkpoints: list[Saved] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)  # one, unless it copies or changes
    attempts: int = 0  # orders so far
    failures: dict[str, int] = field(default_factory=dict)  # by cause
    message: str = ""  # what its last failure, or its stop, was about
    seconds: float = 0.0  # of orders
    excused_s: float = 0.0  # of these, before somebody had it tried again
    rank_s: float = 0.0  # the same, of all their ranks

    def __post_init__(self) -> None:
        self.curves = {metric.name: [] for metric in self.objectives}

    @property
    def metric(self) -> Metric:
        """The one, or the first of several."""
        return self.objectives[0]

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(step, value) of the first metric, as reported."""
        return self.curves[self.metric.name]

    @property
    def step(self) -> int:
        """The last step reported; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def over(self) -> bool:
        """Whether it will never run again."""
        return self.state in OVER

    def completed(self, last: int) -> bool:
        """Whether it came to this step, the end, by itself."""
        return self.state == "COMPLETED" and self.step >= last

    @property
    def values(self) -> tuple[float, ...]:
        """The selected value (last, best, mean_K) of each metric.

        Empty before a report, or when it diverged.
        """
        if self.diverged or self.best is None:
            return ()
        if self.metric.select == "best":  # which no spec of several metrics has
            return (self.metric.loss(self.best[1]),)
        values = (metric.value(self.curves[metric.name]) for metric in self.objectives)
        return tuple(value for value in values if value is not None)

    @property
    def value(self) -> float | None:
        """The selected value of a single metric; None where there is none, or are several."""
        return next(iter(self.values), None) if len(self.objectives) == 1 else None

    @property
    def excess(self) -> tuple[float, ...]:
        """By how much the metrics of its value exceed each limit; empty before a report."""
        if not self.limits or not self.curve:
            return ()
        metrics = self.metrics if self.selected is None else self.selected[1]
        return tuple(limit.excess(metrics) for limit in self.limits)

    @property
    def kept(self) -> bool:
        """Whether it is within all limits, as far as is known."""
        return all(excess <= 0 for excess in self.excess)

    @property
    def losses(self) -> tuple[float, ...]:
        """The values' losses.

        Infinite where it can't be the best: without values, failed, or beyond a limit.
        """
        values = self.values
        if not values or self.state == "FAILED" or not self.kept:
            return (math.inf,) * len(self.objectives)
        return self._signed(values)

    @property
    def loss(self) -> float:
        """The first of the losses."""
        return self.losses[0]

    @property
    def last_losses(self) -> tuple[float, ...]:
        """The last report's losses; all infinite once it diverged."""
        if self.diverged:
            return (math.inf,) * len(self.objectives)
        return self._signed(tuple(curve[-1][1] for curve in self.curves.values()))

    def _signed(self, values: tuple[float, ...]) -> tuple[float, ...]:
        pairs = zip(self.objectives, values, strict=True)
        return tuple(metric.loss(value) for metric, value in pairs)

    @property
    def selected(self) -> tuple[int, Mapping[str, float]] | None:
        """The step that the value is of, and its metrics; None where there is no value."""
        if self.diverged or self.best is None:
            return None
        if self.metric.select == "best":
            return self.best[0], self.best[2]
        return self.step, self.metrics

    def report(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Take a report in; False if it counts for nothing.

        The trial had come so far before, and that report stands; or it does not heed a pause.
        """
        if step <= self.step or (self.yields and step > self.until):
            return False
        for name, curve in self.curves.items():
            curve.append((step, metrics.get(name, math.nan)))
        value = self.curve[-1][1]
        loss = self.metric.loss(value)
        self.steps[step] = value
        self.metrics = metrics
        if not all(math.isfinite(curve[-1][1]) for curve in self.curves.values()):
            self.diverged = True
        elif self.best is None or loss < self.best[1]:
            self.best = (step, loss, metrics)
        reached = bisect_right(self.milestones, step)
        if reached and self.milestones[reached - 1] > self.decided:
            self.awaiting = self.milestones[reached - 1]
        return True

    def ran_s(self, time: float) -> float:
        """Seconds that it has run up to then, since somebody last had it tried again."""
        present = 0.0 if self.order is None else max(0.0, time - self.ordered_at)
        return self.seconds - self.excused_s + present

    def describe(self, data: tuple[DataSet, ...]) -> None:
        """Its trainable told which samples it has."""
        self.data = self.data or data

    def begin(self, order: Order, time: float) -> None:
        """A slot gets this order."""
        after = order.first - 1
        last = self.lives[-1] if self.lives else None
        copies = order.parent is not None
        if last is None or order.params != last.params:
            new = True
        else:
            new = copies and (order.start, after) != (last.start, last.after)
        if new:
            start = order.start if copies else None
            self.lives.append(Life(order.params, after, order.parent, start))
        self.order, self.ordered_at = order, time
        self.yields = self.killed = False
        self.parked = ""
        self.params, self.until = order.params, order.until
        self.milestones = tuple(sorted({*self.milestones, *order.milestones}))
        self.attempts += 1

    def rank_s_at(self, time: float) -> float:
        """The same with that of its present order up to then."""
        if self.order is None:
            return self.rank_s
        return self.rank_s + max(0.0, time - self.ordered_at) * self.order.workers

    def params_at(self, step: int) -> Params:
        """The values with which it trained a step."""
        lives = (life for life in reversed(self.lives) if life.after < step)
        return next((life.params for life in lives), self.params)

    @property
    def shown(self) -> Params:
        """The values that made its value; the present ones while it has none."""
        return self.params if self.selected is None else self.params_at(self.selected[0])

    @property
    def shrink(self) -> int:
        """How often its micro-batches were halved, since one did not fit into memory."""
        return self.failures.get("oversize", 0)

    @property
    def stranded(self) -> bool:
        """Whether it would repeat steps with values that it had only later."""
        return len(self.lives) > 1 and self.newest[1] < self.lives[-1].after

    @property
    def parent(self) -> str | None:
        """The trial that it last copied; None: it copied none."""
        return next((life.parent for life in reversed(self.lives) if life.parent), None)

    def usable(self) -> list[Saved]:
        """Its checkpoints of whole steps, oldest first; one counts once its step is reported."""
        whole = (one for one in self.checkpoints if one.step in self.steps and not one.within)
        return sorted(whole, key=lambda saved: saved.step)  # one may have been long in writing

    @property
    def partial(self) -> Saved | None:
        """Its last checkpoint, if that lies within a step: only the trial itself goes on there."""
        within = (saved for saved in self.checkpoints if saved.within)
        last = max(within, key=lambda saved: saved.place, default=None)
        if last is None or self.over or last.step < self.whole[1]:
            return None
        return last if last.step in self.steps or last.step == 0 else None

    @property
    def newest(self) -> tuple[Saved | None, int, str | None]:
        """What it goes on from: a checkpoint, the step that it counts for, and whose it is."""
        return self.whole if self.partial is None else (self.partial, self.partial.step, None)

    @property
    def whole(self) -> tuple[Saved | None, int, str | None]:
        """The same, of checkpoints of whole steps: what others may copy.

        After a copy that is the parent's, until there is a checkpoint of its own again.
        """
        usable = self.usable()
        life = self.lives[-1] if self.lives else None
        own = usable[-1].step if usable else 0
        if life is not None and life.start is not None and own <= life.after:
            return life.start, life.after, life.parent
        return (usable[-1], usable[-1].step, None) if usable else (None, 0, None)

    @property
    def borrowed(self) -> Saved | None:
        """The checkpoint of another trial that it may still need."""
        start = None if self.order is None or self.order.parent is None else self.order.start
        saved, _, parent = self.newest
        return start or (saved if parent is not None and not self.over else None)

    def checkpoint_at(self, step: int | None) -> Saved | None:
        """The checkpoint of a step if it is kept, otherwise None."""
        return next((saved for saved in self.usable() if saved.step == step), None)

    def next_order(self, number: int, until: int, milestones: tuple[int, ...]) -> Order:
        """The order that carries it on from its newest checkpoint."""
        start, step, parent = self.newest
        undecided = tuple(step for step in milestones if step > self.decided)
        order = Order(number, self.id, self.params, start, step + 1, until, undecided, parent)
        return replace(order, shrink=self.shrink)

    def observation(self) -> Observation:
        """What a searcher may see of it."""
        settled = self.over or self.state == "PAUSED"
        failed = self.diverged or self.state == "FAILED"
        values = () if failed else self.values
        losses = self._signed(values) if values else ()
        several = len(self.objectives) > 1
        return Observation(
            id=self.id,
            params=self.shown,
            note=self.note,
            loss=losses[0] if losses and not several else None,
            losses=losses if several else (),
            excess=() if failed else self.excess,
            curve=self.metric.losses(self.curve),
            state=("failed" if failed else "done") if settled else "pending",
            reason="diverged" if self.diverged else self.reason,
            cost=self.seconds or None,
        )
