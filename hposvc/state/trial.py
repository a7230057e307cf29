"""The state of one trial: a fold of its events."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from typing import Any, Literal

from hposvc.events import NO_NOISE, TrialAction
from hposvc.spec.metrics import Limit, Metric, SelectedValue
from searchers import REPEAT_OF, Observation, Params, Value
from trainables.contract import DataSet, Order, Saved

TrialPhase = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"]
END = 1 << 60  # the place beyond all steps
OVER: frozenset[TrialPhase] = frozenset({"COMPLETED", "STOPPED", "FAILED"})
# The phases that may follow each phase. A trial that is over runs again if its sweep is extended,
# or if somebody has it tried again.
TRANSITIONS: Mapping[TrialPhase, frozenset[TrialPhase]] = {
    "PENDING": frozenset({"RUNNING", "PAUSED", "STOPPED", "FAILED"}),
    "RUNNING": frozenset({"PENDING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"}),
    "PAUSED": frozenset({"RUNNING", "STOPPED"}),
    "COMPLETED": frozenset({"RUNNING"}),
    "STOPPED": frozenset({"PENDING", "PAUSED"}),
    "FAILED": frozenset({"PENDING", "PAUSED", "COMPLETED"}),
}


@dataclass(frozen=True)
class Intent:
    """The instruction for a trial's present order, with its reason.

    `yield`: end the order at its last reported step; the scheduler says whether the trial goes on.
    `suspend`: give the slot back; the trial goes on with another order.
    `stop`: end the trial. This intent stays when the trial is over.
    """

    kind: Literal["yield", "suspend", "stop"]
    verdict: TrialAction
    reason: str
    time: float  # when it was told
    killed: bool = False  # it did not end its order in time, and is not waited for
    ended_from: TrialPhase | None = None  # its phase when its sweep ended it; None: its own end


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of a trial with the same values, starting from one checkpoint.

    A trial that copies another one (an exploit of PBT) or changes its values begins a new segment.
    """

    params: Params
    after: int  # the last step before the segment, on the trial's own clock
    parent: str | None = None  # the trial that owns `start`; None: this trial
    start: Saved | None = None  # None: from scratch


@dataclass
class DeviceUse:
    """The time that a trial spent on a model of device."""

    rank_s: float = 0.0  # of ended orders
    # Between two reports of an order: steps, and rank-seconds. What comes before an order's first
    # report is left out: it may be the start of a process.
    steps: int = 0
    steps_rank_s: float = 0.0


def trial_name(number: int) -> str:
    """Return the name of a sweep's n-th trial, from 1."""
    return f"t{number:04d}"


@dataclass
class TrialState:
    """A trial. Values are as reported; losses are signed so that lower is better."""

    id: str
    objectives: tuple[Metric, ...]  # one, or several
    params: Params  # the present values
    note: Mapping[str, Any]
    until: int | None  # last step of its present or next order; None: where its trainable returns
    milestones: tuple[int, ...]
    number: int  # in the order proposed; of a replicate, from 1 among the finalist's
    limits: tuple[Limit, ...] = ()
    ends_at_limit: bool = False  # a report that breaks a limit ends it; earlier ones are its value
    broke_at: int | None = None  # the step of that report
    replicate_of: str | None = None  # the finalist that it trains again; None: it is no replicate
    state: TrialPhase = "PENDING"
    reason: str = ""
    order: Order | None = None  # the order that a slot has
    ordered_at: float = 0.0
    curves: dict[str, list[tuple[int, float]]] = field(init=False)  # by metric, as reported
    chosen: dict[str, SelectedValue] = field(init=False)  # the selected values so far, by metric
    steps: dict[int, float] = field(default_factory=dict)  # the first metric's curve, by step
    metrics: Mapping[str, float] = field(default_factory=dict)  # of the last step with a value
    reached: int = 0  # the last step reported, with the sweep's metrics or without
    unjudged: dict[int, Mapping[str, float]] = field(default_factory=dict)  # steps without them
    best: tuple[int, float, Mapping[str, float]] | None = None  # step, first loss, metrics
    diverged: bool = False
    excluded: str = ""  # why a user lets it count no longer; empty: it counts
    seeds: list["TrialState"] = field(default_factory=list)  # the same with the next seeds
    most_seeds: int = 1  # itself included
    together: int = 1  # of its seeds, itself included, those that its rungs wait for
    leaves_out: bool = False  # whether failed seeds are left out; else they are infinite losses
    at_end: bool = False  # it came to its end by itself, and its value is its result
    returned: bool = False  # its trainable returned, which is the end of a trial without fidelity
    awaiting: int | None = None  # the milestone that it reached and that is undecided
    decided: int = 0  # the last decided milestone
    intent: Intent | None = None  # None: its order goes on to its end
    device: str = ""  # the models that its order runs on, or its last one; empty: unknown
    node: str = ""
    market: str = ""  # of the nodes of its order, or its last one; empty: any
    uses: dict[str, DeviceUse] = field(default_factory=dict)  # by device, in order of use
    # Values of parameters that its sweep lacks, and that were decided while it ran.
    suggested: dict[str, Value] = field(default_factory=dict)
    # Parameters that the objective had not asked for when its last order ended; None: unknown.
    unused: tuple[str, ...] | None = None
    data: tuple[DataSet, ...] = ()  # its samples, if its trainable declared them
    checkpoints: list[Saved] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # one, unless it copies or changes
    attempts: int = 0  # orders so far
    memo: str = ""  # the earlier training, `SWEEP/TRIAL`, whose reports it has; empty: it trained
    failures: dict[str, int] = field(default_factory=dict)  # by cause
    message: str = ""  # of its last failure or stop
    seconds: float = 0.0  # of orders
    excused_s: float = 0.0  # of these seconds, before somebody had it tried again
    rank_s: float = 0.0  # rank-seconds of orders; of several in one process, each has its part
    energy_kwh: float | None = None  # of orders, as far as they have said; None: not measured
    order_kwh: float = 0.0  # of this, its order's, or its last order's
    at_once: int = 1  # orders that a process of its sweep carries out at a time
    reported: tuple[int, float] | None = None  # step and time of its order's last report
    costs: list[tuple[int, float]] = field(default_factory=list)  # (step, rank_s by its report)

    def __post_init__(self) -> None:
        self.curves = {metric.name: [] for metric in self.objectives}
        self.chosen = {metric.name: SelectedValue(metric) for metric in self.objectives}

    @property
    def metric(self) -> Metric:
        """The metric, or the first of several."""
        return self.objectives[0]

    @property
    def curve(self) -> list[tuple[int, float]]:
        """(step, value) of the first metric, as reported."""
        return self.curves[self.metric.name]

    @property
    def step(self) -> int:
        """The last step reported with the sweep's metrics; 0 before the first."""
        return self.curve[-1][0] if self.curve else 0

    @property
    def over(self) -> bool:
        """Whether it has ended; only an extension or a retry makes it run again."""
        return self.state in OVER

    @property
    def shown_as(self) -> str:
        """The name in orders, events, logs and MLflow; for a replicate that of the finalist."""
        return self.replicate_of or self.id

    def intends(self, kind: Literal["yield", "suspend", "stop"]) -> bool:
        """Return whether the trial was told this last."""
        return self.intent is not None and self.intent.kind == kind

    @property
    def ended_from(self) -> TrialPhase | None:
        """Return the trial's phase when the end of its sweep ended it, or None."""
        return None if self.intent is None else self.intent.ended_from

    @property
    def done(self) -> bool:
        """Whether it has done all steps of its order."""
        return self.came_to(self.until)

    @property
    def end_reason(self) -> tuple[str, str]:
        """A word, and a text for people, that say why it ended or counts no longer."""
        if self.excluded:
            return "excluded", self.excluded
        if self.fails and not (self.diverged or self.state == "FAILED"):
            seed = self.failed_seeds[0]
            reason, message = seed.end_reason
            return reason, f"seed {seed.number + 1}: {message or reason}"
        return self.reason, self.message

    def came_to(self, last: int | None) -> bool:
        """Return whether it reached this step; None: whether its trainable returned."""
        return self.returned if last is None else self.reached >= last

    @property
    def runs(self) -> list["TrialState"]:
        """The trainings of its configuration that count: its own, those with the next seeds."""
        if self.at_end:
            return [self, *(seed for seed in self.seeds if seed.at_end and seed.own_values)]
        failed = self.failed_seeds if self.seeds else []
        return [self, *(seed for seed in self.seeds[: self.together - 1] if seed not in failed)]

    @property
    def level(self) -> bool:
        """Whether the seeds that its rungs wait for came as far as itself, or failed."""
        if self.order is not None or self.state == "PENDING":
            return False
        if self.over and not self.at_end:
            return True
        return all(
            seed.over or (seed.state == "PAUSED" and seed.reached >= self.reached)
            for seed in self.seeds[: self.together - 1]
        )

    @property
    def failed_seeds(self) -> list["TrialState"]:
        """The trainings of its configuration with other seeds that failed, or diverged.

        One that is tried again stays among them until it comes to its end.
        """
        return [
            seed
            for seed in self.seeds
            if seed.state == "FAILED" or seed.diverged or (seed.excused_s and not seed.at_end)
        ]

    @property
    def exact(self) -> bool:
        """Whether a further seed gave its own curve, so that all would give its value."""
        return any(seed.reason == NO_NOISE for seed in self.seeds)

    @property
    def fails(self) -> bool:
        """Whether it has no result that counts, as one of its trainings failed or diverged."""
        failed = self.state == "FAILED" or self.diverged
        return failed or (not self.leaves_out and bool(self.seeds) and bool(self.failed_seeds))

    @property
    def place(self) -> int:
        """How far it came: its last step, or beyond all steps how many seeds were tried."""
        if not self.at_end:
            return min(run.step for run in self.runs)
        if self.exact:
            return END + self.most_seeds
        return END + len(self.runs) + (len(self.failed_seeds) if self.leaves_out else 0)

    def completed(self, last: int | None) -> bool:
        """Return whether it completed with this last step."""
        return self.state == "COMPLETED" and self.came_to(last)

    @property
    def values(self) -> tuple[float, ...]:
        """The selected value (last, best, mean_K) of each metric: the mean over its seeds.

        Empty before a report, when it diverged, or was excluded.
        """
        own, runs = self.own_values, self.runs
        if not own or len(runs) == 1:
            return own
        if not self.at_end:
            step = self.place
            return self._signed(self.losses_at(step)) if step else ()
        return tuple(map(average, zip(*(run.own_values for run in runs), strict=True)))

    @property
    def own_values(self) -> tuple[float, ...]:
        """The selected value of each metric, of its own training alone."""
        if self.diverged or self.excluded or self.best is None:
            return ()
        values = (selected.value for selected in self.chosen.values())
        return tuple(value for value in values if value is not None)

    @property
    def value(self) -> float | None:
        """The selected value of a single metric; None: there is none, or several metrics."""
        return next(iter(self.values), None) if len(self.objectives) == 1 else None

    @property
    def excess(self) -> tuple[float, ...]:
        """The excess over each limit of the metrics of its value; empty before a report."""
        if not self.limits or not self.curve:
            return ()
        return tuple(map(average, zip(*(run.own_excess for run in self.runs), strict=True)))

    @property
    def own_excess(self) -> tuple[float, ...]:
        """The excess over each limit, of its own training alone."""
        metrics = self.metrics if self.selected is None else self.selected[1]
        return tuple(limit.excess(metrics) for limit in self.limits)

    def broken(self, metrics: Mapping[str, float]) -> list[Limit]:
        """Return the limits at which a report with the sweep's metrics ends the trial."""
        judged = self.ends_at_limit and metrics.keys() >= self.curves.keys()
        return [limit for limit in self.limits if judged and limit.excess(metrics) > 0]

    @property
    def kept(self) -> bool:
        """Whether it is within all limits, as far as it has reported."""
        return all(excess <= 0 for excess in self.excess)

    @property
    def losses(self) -> tuple[float, ...]:
        """The losses of its values.

        Infinite if it can't be the best trial: without values, failed, or beyond a limit.
        """
        values = self.values
        if not values or self.fails or not self.kept:
            return (math.inf,) * len(self.objectives)
        return self._signed(values)

    @property
    def loss(self) -> float:
        """The first of the losses."""
        return self.losses[0]

    @property
    def meets_targets(self) -> bool:
        """Whether its values meet all targets; False: there are none."""
        targets = [metric.target is not None for metric in self.objectives]
        if not any(targets) or not math.isfinite(self.loss):
            return False
        with_target = compress(zip(self.objectives, self.values, strict=True), targets)
        return all(metric.reached(value) for metric, value in with_target)

    def losses_at(self, step: int) -> tuple[float, ...]:
        """Return the losses of its values at a step, between two reports on a straight line.

        After its last report they stay; before the first they are minus infinity: unknown.
        """
        rows = ([loss_at(one.losses, step) for one in run.chosen.values()] for run in self.runs)
        return tuple(map(average, zip(*rows, strict=True)))

    def loss_at(self, place: int) -> float:
        """Return the first of the losses at a step, or of its first seeds: see `place`."""
        name = self.metric.name
        if not self.seeds or (place <= END and self.together == 1):
            return loss_at(self.chosen[name].losses, place)
        if place <= END:
            return average([loss_at(run.chosen[name].losses, place) for run in self._first_runs])
        known = [loss for loss in self.seed_losses(place - END) if not math.isnan(loss)]
        return average(known or [math.inf])

    @property
    def _first_runs(self) -> list["TrialState"]:
        return [run for run in self.runs if run is self or run.number < self.together]

    def seed_losses(self, most: int) -> list[float]:
        """Return the first of the losses of its first seeds that ended; NaN: one failed."""
        if self.exact:
            return [self.own_loss] * most
        failed = self.failed_seeds
        tried = (seed for seed in self.seeds if seed.at_end or seed in failed)
        return [run.own_loss for run in islice((self, *tried), most)]

    @property
    def own_loss(self) -> float:
        """The first of the losses of its own training alone; NaN: it has no result."""
        values = self.own_values if self.at_end else ()
        return self.metric.loss(values[0]) if values else math.nan

    @property
    def last_losses(self) -> tuple[float, ...]:
        """The losses of the last report; all infinite once it diverged."""
        return self.reported_losses(self.step)

    def reported_losses(self, step: int) -> tuple[float, ...]:
        """Return the losses of a report, the means of its first seeds; all infinite if it fails."""
        if self.fails or (self.broke_at is not None and step >= self.broke_at):
            return (math.inf,) * len(self.objectives)
        rows = ([loss_at(one, step) for one in run.curves.values()] for run in self._first_runs)
        return self._signed(tuple(map(average, zip(*rows, strict=True))))

    def _signed(self, values: tuple[float, ...]) -> tuple[float, ...]:
        pairs = zip(self.objectives, values, strict=True)
        return tuple(metric.loss(value) for metric, value in pairs)

    @property
    def selected(self) -> tuple[int, Mapping[str, float]] | None:
        """The step of its value, and the metrics of that step; None: there is no value."""
        if self.diverged or self.best is None:
            return None
        if self.metric.select == "best":
            return self.best[0], self.best[2]
        return self.chosen[self.metric.name].losses[-1][0], self.metrics

    def counts(self, step: int) -> bool:
        """Return whether the report of a step may be its value: no limit was broken before."""
        return self.broke_at is None or step < self.broke_at or step == self.curve[0][0]

    def report(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Apply a report, and return whether it counts.

        It does not if the trial had reported this step before, or ignores a pause.
        """
        beyond = self.until is not None and step > self.until
        if step <= self.reached or (self.intent is not None and beyond):
            return False
        self.reached = step
        if not metrics.keys() >= self.curves.keys():
            self.unjudged[step] = metrics
            return True
        for name, curve in self.curves.items():
            curve.append((step, metrics[name]))
        self.steps[step] = self.curve[-1][1]
        if self.broke_at is None and self.broken(metrics):
            self.broke_at = step
        if self.broke_at is None or self.best is None:  # a first report is its value in any case
            self._take(step, metrics)
        reached = bisect_right(self.milestones, step)
        if reached and self.milestones[reached - 1] > self.decided:
            self.awaiting = self.milestones[reached - 1]
        return True

    def _take(self, step: int, metrics: Mapping[str, float]) -> None:
        """Let the metrics of a report count."""
        for name, selected in self.chosen.items():
            selected.add(step, metrics[name])
        loss = self.metric.loss(metrics[self.metric.name])
        self.metrics = metrics
        if not all(math.isfinite(metrics[name]) for name in self.curves):
            self.diverged = True
        elif self.best is None or loss < self.best[1]:
            self.best = (step, loss, metrics)

    def has_reported(self, step: int) -> bool:
        """Return whether it reported this step, with the sweep's metrics or without."""
        return step in self.steps or step in self.unjudged

    def forget_reports(self) -> None:
        """Forget its reports, none of which had the sweep's metrics: it begins anew."""
        self.reached = 0
        self.unjudged.clear()

    def record_device(self, device: str, node: str) -> None:
        """Record where its order runs."""
        self.device, self.node = device, node
        if device:
            self.uses.setdefault(device, DeviceUse())

    def follow_pace(self, time: float) -> None:
        """Record how long the steps since its order's last report took, at a report that counts."""
        use = self.uses.get(self.device)
        if use is not None and self.reported is not None and self.order is not None:
            step, before = self.reported
            use.steps += self.step - step
            use.steps_rank_s += max(0.0, time - before) * self.order.workers / self.at_once
        self.reported = (self.step, time)

    def devices(self, time: float) -> dict[str, float]:
        """Return its rank-seconds on each model of device up to a time; empty text: unknown."""
        spent = {device: use.rank_s for device, use in self.uses.items()}
        present = self.rank_s_at(time) - self.rank_s
        if present:
            spent[self.device] = spent.get(self.device, 0.0) + present
        unknown = self.rank_s_at(time) - sum(spent.values())
        if unknown > 1e-6:  # more than a rounding error
            spent[""] = spent.get("", 0.0) + unknown
        return spent

    def ran_s(self, time: float) -> float:
        """Return the seconds that it ran up to a time, since somebody last had it tried again."""
        return self.seconds_at(time) - self.excused_s

    def seconds_at(self, time: float) -> float:
        """Return the seconds that its orders held slots up to a time."""
        present = 0.0 if self.order is None else max(0.0, time - self.ordered_at)
        return self.seconds + present

    def describe(self, data: tuple[DataSet, ...]) -> None:
        """Record the samples that its trainable declared; the first declaration stands."""
        self.data = self.data or data

    def begin(self, order: Order, time: float) -> None:
        """Apply an order that was given to a slot."""
        after = order.first - 1
        last = self.segments[-1] if self.segments else None
        copies = order.parent is not None
        if last is None or order.params != last.params:
            new = True
        else:
            new = copies and (order.start, after) != (last.start, last.after)
        if new:
            start = order.start if copies else None
            self.segments.append(Segment(order.params, after, order.parent, start))
        self.order, self.ordered_at, self.memo = order, time, order.memo
        self.device, self.node, self.reported, self.order_kwh = "", "", None, 0.0
        self.intent = None
        self.params, self.until = order.params, order.until
        self.milestones = tuple(sorted({*self.milestones, *order.milestones}))
        self.attempts += 1

    def rank_s_at(self, time: float) -> float:
        """Return the rank-seconds up to a time, its present order included."""
        if self.order is None:
            return self.rank_s
        return self.rank_s + max(0.0, time - self.ordered_at) * self.order.workers / self.at_once

    def cost_at(self, time: float) -> float:
        """Return the rank-seconds up to a time, those of its further seeds included."""
        return sum(run.rank_s_at(time) for run in (self, *self.seeds))

    def params_at(self, step: int) -> Params:
        """Return the values with which it trained a step."""
        before = (segment for segment in reversed(self.segments) if segment.after < step)
        return next((segment.params for segment in before), self.params)

    @property
    def reported_params(self) -> Params:
        """The parameters that led to its value; the present ones while it has none.

        Those that were decided while it ran come last.
        """
        return {**self._proposed_params, **self.suggested}

    @property
    def _proposed_params(self) -> Params:
        return self.params if self.selected is None else self.params_at(self.selected[0])

    @property
    def shrink(self) -> int:
        """How often its micro-batches were halved because one did not fit into memory."""
        return self.failures.get("oversize", 0)

    @property
    def lost_lineage(self) -> bool:
        """Whether it could only repeat steps with values that it got later."""
        return len(self.segments) > 1 and self.resume_point[1] < self.segments[-1].after

    @property
    def repeat_of(self) -> str | None:
        """The trial whose configuration the searcher repeated here; None: the trial is new."""
        original = self.note.get(REPEAT_OF)
        return original if isinstance(original, str) else None

    @property
    def parent(self) -> str | None:
        """The trial that it last copied; None: it copied none."""
        segments = reversed(self.segments)
        return next((segment.parent for segment in segments if segment.parent), None)

    def usable(self) -> list[Saved]:
        """Return its checkpoints at step boundaries, oldest first, whose steps were reported."""
        at_boundary = (
            saved
            for saved in self.checkpoints
            if self.has_reported(saved.step) and not saved.within
        )
        return sorted(at_boundary, key=lambda saved: saved.step)  # a late one may come out of order

    @property
    def mid_step_checkpoint(self) -> Saved | None:
        """Its last checkpoint, if it lies amid a step; only the trial itself continues from it."""
        within = (saved for saved in self.checkpoints if saved.within)
        last = max(within, key=lambda saved: saved.position, default=None)
        if last is None or self.over or last.step < self.boundary_point[1]:
            return None
        return last if self.has_reported(last.step) or last.step == 0 else None

    @property
    def resume_point(self) -> tuple[Saved | None, int, str | None]:
        """The checkpoint to continue from, its step, and its owner (None: this trial)."""
        return (
            self.boundary_point
            if self.mid_step_checkpoint is None
            else (self.mid_step_checkpoint, self.mid_step_checkpoint.step, None)
        )

    @property
    def boundary_point(self) -> tuple[Saved | None, int, str | None]:
        """The resume point at a step boundary; only such checkpoints may be copied by others.

        After a copy it is the parent's, until the trial has a checkpoint of its own again.
        """
        usable = self.usable()
        life = self.segments[-1] if self.segments else None
        own = usable[-1].step if usable else 0
        if life is not None and life.start is not None and own <= life.after:
            return life.start, life.after, life.parent
        return (usable[-1], usable[-1].step, None) if usable else (None, 0, None)

    @property
    def borrowed_checkpoint(self) -> Saved | None:
        """The checkpoint of another trial that it may still need; None: it needs none."""
        start = None if self.order is None or self.order.parent is None else self.order.start
        saved, _, parent = self.resume_point
        return start or (saved if parent is not None and not self.over else None)

    def checkpoint_at(self, step: int | None) -> Saved | None:
        """Return the checkpoint of a step; None: it is not kept."""
        return next((saved for saved in self.usable() if saved.step == step), None)

    def next_order(self, number: int, until: int | None, milestones: tuple[int, ...]) -> Order:
        """Return the order that continues it from its newest checkpoint."""
        start, step, parent = self.resume_point
        undecided = tuple(step for step in milestones if step > self.decided)
        order = Order(number, self.shown_as, self.params, start, step + 1, until, undecided, parent)
        replicate = 0 if self.replicate_of is None else self.number
        return replace(order, shrink=self.shrink, replicate=replicate)

    def losses_to_end(
        self, losses: Sequence[tuple[int, float]], last: float = math.inf
    ) -> tuple[tuple[int, float], ...]:
        """Return the curve of a value; once a limit ended the trial, it stays to the last step.

        Args:
            last: a step that it does not go beyond.
        """
        if self.broke_at is None or not losses:
            return tuple(losses)
        end = int(min(max(self.until or 0, self.broke_at), last))
        return (*losses, *([(end, losses[-1][1])] if end > losses[-1][0] else []))

    def observation(self) -> Observation:
        """Return the trial as a searcher may see it."""
        settled = self.over or self.state == "PAUSED"
        several = len(self.objectives) > 1
        values = () if self.fails else self.values if several else self.own_values
        losses = self._signed(values) if values else ()
        curve, *curves = (self.losses_to_end(each.losses) for each in self.chosen.values())
        if several and losses and len(self.runs) > 1:  # of one metric all are told: see `repeats`
            means = zip((curve, *curves), losses, strict=True)
            curve, *curves = ((*steps[:-1], (steps[-1][0], loss)) for steps, loss in means)
        return Observation(
            id=self.id,
            params=self._proposed_params,  # of the space
            note=self.note,
            loss=losses[0] if losses and not several else None,
            losses=losses if several else (),
            excess=() if self.fails else self.excess,
            curve=curve,
            curves=tuple(curves),
            state=("failed" if self.fails else "done") if settled else "pending",
            reason="diverged" if self.diverged else self.end_reason[0],
            cost=self.seconds or None,
        )


def average(values: Sequence[float]) -> float:
    """Return the mean, which lies between the values; infinite if it exceeds a float."""
    try:
        mean = math.fsum(values) / len(values)
    except OverflowError:
        mean = math.fsum(value / len(values) for value in values)
    return min(max(mean, min(values)), max(values))


def loss_at(losses: Sequence[tuple[int, float]], step: int) -> float:
    """Return the loss of a curve at a step, between two reports on a straight line.

    After the last report it stays; before the first it is minus infinity: unknown.
    """
    place = bisect_right(losses, (step, math.inf))
    if not place:
        return -math.inf
    begin, loss = losses[place - 1]
    if begin == step or place == len(losses):
        return loss
    end, later = losses[place]
    share = (step - begin) / (end - begin)
    return (1 - share) * loss + share * later
