"""Read from the journal of an earlier sweep, or of a pilot, what the next one may cost."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Any, Literal

import numpy as np

from hposvc.events import (
    OWN,
    Attached,
    Checkpointed,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Reported,
    Requested,
    Suspended,
)
from hposvc.spec import SweepSpec
from trainables.contract import Order

Origin = Literal["pilot", "earlier", "stated"]
FEW = 3  # trials from which curves are compared
DEVIATION = 1.4826  # of a normal distribution, in units of its median absolute deviation


@dataclass(frozen=True)
class Curves:
    """How losses fall within a trial, in units of the spread between trials."""

    fall: float  # per e-fold of steps
    noise: float  # of a report
    trials: int
    spread: float  # between trials, in the metric's unit


@dataclass(frozen=True)
class Evidence:
    """The measured cost of trials; times in seconds."""

    origin: Origin
    names: tuple[str, ...]  # of the sweeps; empty for a pilot and for what a person stated
    step_s: tuple[float, ...]  # mean of each trial; without fidelity, of the whole trial
    first_s: tuple[float, ...] = ()  # of the first order of each slot, beyond its steps
    later_s: tuple[float, ...] = ()  # of each other order, beyond its steps
    pauses_s: tuple[float, ...] = ()  # from an order to the next on its slot
    start_s: tuple[float, ...] = ()  # from a driver's start to its first order
    close_s: tuple[float, ...] = ()  # from the last order to the end of the sweep
    trials: int = 0
    orders: int = 0
    steps: int = 0
    lost: int = 0  # orders, to machines
    failed_at_once: int = 0  # trials whose own fault ended them before any report
    failed_later: int = 0  # trials whose own fault, or divergence, ended them later
    slots: int | None = None  # most orders at once; None: nothing ran
    checkpoint: int | None = None  # bytes of the largest; None: none was written
    curves: Curves | None = None  # None: too few to tell
    speed_rank: float = 0.0  # rank correlation of a trial's time and loss; above 0: slow is bad
    speed_pairs: int = 0  # trials behind it
    other_setup: bool = False  # other resources, or more or fewer trials at once

    def data(self) -> dict[str, Any]:
        """Return the source for JSON."""
        return {
            "origin": self.origin,
            "sweeps": list(self.names),
            "trials": self.trials,
            "seconds_per_step": median(self.step_s),
        }


@dataclass
class _EarlierOrder:
    """An order of an earlier sweep."""

    order: Order
    began: float
    cold: bool  # whether it is the first order of its slot
    reports: list[tuple[float, int]] = field(default_factory=list)  # time and step
    ended: float | None = None
    failure: Failed | None = None
    lost: bool = False  # with its driver


@dataclass
class _Reading:
    """Times and failures of the orders so far."""

    spec: SweepSpec
    runs: dict[int, _EarlierOrder] = field(default_factory=dict)
    under_way: dict[int, _EarlierOrder] = field(default_factory=dict)
    freed: list[float] = field(default_factory=list)  # when slots were, and no order came since
    pauses_s: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    closes_s: list[float] = field(default_factory=list)
    attached: float | None = None
    most: int = 0  # orders at once
    curves: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    largest: int = 0

    def apply(self, event: Event) -> None:
        match event:
            case Attached():
                self.attached = event.time
                self.freed.clear()
                for run in self.under_way.values():
                    run.lost = True
                self.under_way.clear()
            case Ordered():
                self._begin(event)
            case Checkpointed():
                self.largest = max(self.largest, event.saved.size)
            case Reported():
                if event.order in self.runs:
                    self.runs[event.order].reports.append((event.time, event.step))
                self._add_loss(event)
            case Requested(verb="exclude", trial=str(name)):
                self.curves.pop(name, None)
            case Ended() | Failed() if event.order in self.under_way:
                run = self.under_way.pop(event.order)
                run.ended, run.failure = event.time, event if isinstance(event, Failed) else None
                self.freed.append(event.time)
            case Finished() | Suspended() if self.freed:
                self.closes_s.append(event.time - max(self.freed))

    def _add_loss(self, event: Reported) -> None:
        metric = self.spec.objectives[0]
        if metric.name in event.metrics:
            loss = metric.loss(event.metrics[metric.name])
            self.curves[event.trial].setdefault(event.step, loss)

    def _begin(self, event: Ordered) -> None:
        if event.order.memo:  # it took no time
            return
        if self.attached is not None:
            self.starts_s.append(event.time - self.attached)
            self.attached = None
        run = _EarlierOrder(event.order, event.time, cold=not self.freed)
        self.runs[event.order.id] = self.under_way[event.order.id] = run
        if self.freed:
            self.pauses_s.append(event.time - self.freed.pop())
        self.most = max(self.most, len(self.under_way))


def read(
    spec: SweepSpec, events: Iterable[Event], origin: Origin, name: str = ""
) -> Evidence | None:
    """Return what a sweep's events show; None: no trial of it reported or ended.

    Args:
        spec: the sweep's own.
        name: its id.
    """
    seen = _Reading(spec)
    for event in events:
        seen.apply(event)
    runs = [run for run in seen.runs.values() if not run.lost]
    times = _trial_times(runs, spec.last_step is None)
    if not times:
        return None
    overheads: dict[bool, list[float]] = {True: [], False: []}  # seconds beyond steps, by cold
    for run in runs:
        if run.ended is not None and run.reports and run.failure is None:
            steps_s = times.get(run.order.trial, math.nan) * _steps(run, run.reports[-1])
            if math.isfinite(steps_s):
                overheads[run.cold].append(run.ended - run.began - steps_s)
    failures = [run.failure for run in seen.runs.values() if run.failure is not None]
    own = {failure.trial for failure in failures if failure.cause in OWN}
    curves = [curve for curve in seen.curves.values() if any(map(math.isfinite, curve.values()))]
    speed_rank, pairs = _speed_and_loss(seen.curves, times)
    return Evidence(
        origin=origin,
        names=(name,) if name else (),
        step_s=tuple(times.values()),
        first_s=tuple(overheads[True]),
        later_s=tuple(overheads[False]),
        pauses_s=tuple(seen.pauses_s),
        start_s=tuple(seen.starts_s),
        close_s=tuple(seen.closes_s),
        trials=len({run.order.trial for run in seen.runs.values()}),
        orders=len(seen.runs),
        steps=sum(len(curve) for curve in seen.curves.values()),
        lost=sum(failure.cause not in OWN for failure in failures),
        failed_at_once=len(own - seen.curves.keys()),
        failed_later=len(own & seen.curves.keys()) + len(seen.curves) - len(curves),
        slots=seen.most or None,
        checkpoint=seen.largest or None,
        curves=_curves(curves),
        speed_rank=speed_rank,
        speed_pairs=pairs,
    )


def join(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of several sweeps as that of one, the newest first."""
    joined: dict[str, Any] = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("trials", "orders", "steps", "lost", "failed_at_once", "failed_later")
    }
    for name, value in vars(parts[0]).items():
        if isinstance(value, tuple):
            joined[name] = tuple(each for part in parts for each in getattr(part, name))
    return replace(
        parts[0],
        **joined,
        checkpoint=max((part.checkpoint or 0 for part in parts), default=0) or None,
        curves=next((part.curves for part in parts if part.curves is not None), None),
        other_setup=any(part.other_setup for part in parts),
    )


def _steps(run: _EarlierOrder, report: tuple[float, int]) -> int:
    """Return how many steps an order had done at a report."""
    return report[1] - run.order.first + 1


def _trial_times(runs: Sequence[_EarlierOrder], whole: bool) -> dict[str, float]:
    """Return the seconds per step of each trial; of whole trials, those of the completed orders.

    The first report of an order contains its start; it counts only for trials that show no other.
    """
    seconds: dict[str, float] = defaultdict(float)
    steps: dict[str, int] = defaultdict(int)
    short: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        trial, reports = run.order.trial, run.reports
        if whole:
            if run.ended is not None and run.failure is None:
                short[trial].append(run.ended - run.began)
        elif len(reports) > 1:
            seconds[trial] += reports[-1][0] - reports[0][0]
            steps[trial] += reports[-1][1] - reports[0][1]
        elif reports:
            done = max(_steps(run, reports[0]), 1)
            short[trial].append((reports[0][0] - run.began) / done)
    times = {trial: seconds[trial] / steps[trial] for trial in steps if steps[trial]}
    starts_s = [  # how much longer first reports take than their steps
        run.reports[0][0] - run.began - times[run.order.trial] * _steps(run, run.reports[0])
        for run in runs
        if run.reports and run.order.trial in times
    ]
    start_s = max(median(starts_s), 0.0) if starts_s and not whole else 0.0
    for trial, values in short.items():
        if trial not in times:
            times[trial] = max(mean(values) - start_s, 0.05 * mean(values))
    return {trial: value for trial, value in times.items() if value > 0}


def _curves(curves: Sequence[dict[int, float]]) -> Curves | None:
    """Return how losses fall with the logarithm of steps; None: fewer than three long curves."""
    slopes, rests, levels = [], [], []
    for curve in curves:
        points = [(math.log(step), loss) for step, loss in curve.items() if math.isfinite(loss)]
        if len(points) < 2:
            continue
        x, y = np.array(points).T
        slope = float(np.polyfit(x, y, 1)[0])
        slopes.append(slope)
        levels.append(float(y[0]))
        rests += list(y - y.mean() - slope * (x - x.mean()))
    if len(slopes) < FEW:
        return None
    spread = DEVIATION * float(np.median(np.abs(np.array(levels) - np.median(levels))))
    if not spread > 0:
        return None
    noise = DEVIATION * float(np.median(np.abs(rests)))
    return Curves(-float(np.median(slopes)) / spread, noise / spread, len(slopes), spread)


def _speed_and_loss(
    curves: Mapping[str, Mapping[int, float]], times: Mapping[str, float]
) -> tuple[float, int]:
    """Return the rank correlation of seconds per step and the first loss, and of how many."""
    losses = {trial: curve[min(curve)] for trial, curve in curves.items() if trial in times}
    pairs = [(times[trial], loss) for trial, loss in losses.items() if math.isfinite(loss)]
    if len(pairs) < FEW or any(len({*column}) < 2 for column in zip(*pairs, strict=True)):
        return 0.0, 0
    ranks = np.array([np.argsort(np.argsort(each)) for each in zip(*pairs, strict=True)])
    return float(np.corrcoef(ranks)[0, 1]), len(pairs)
