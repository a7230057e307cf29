"""Read from the journal of an earlier sweep, or of a pilot, what the next one may cost."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
    Suspended,
)
from hposvc.spec import SweepSpec
from trainables.order import Order

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
class _Reading:
    """Times and failures of the orders so far."""

    orders: dict[int, Order] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    reports: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[int, float] = field(default_factory=dict)
    freed: list[float] = field(default_factory=list)  # when slots were, and no order came since
    cold: set[int] = field(default_factory=set)  # first orders of their slots
    pauses_s: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    closes_s: list[float] = field(default_factory=list)
    attached: float | None = None
    most: int = 0
    slots: int = 0  # that have had an order of this driver
    failures: dict[int, Failed] = field(default_factory=dict)
    curves: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    largest: int = 0

    def apply(self, event: Event, spec: SweepSpec) -> None:
        match event:
            case Attached():
                self.attached, self.slots = event.time, 0
                self.freed.clear()
                self.began = {name: at for name, at in self.began.items() if name in self.ended}
            case Ordered(order=order):
                self._begin(order, event.time)
            case Checkpointed():
                self.largest = max(self.largest, event.saved.size)
            case Reported():
                self.reports[event.order].append((event.time, event.step))
                metric = spec.objectives[0]
                if metric.name in event.metrics:
                    loss = metric.loss(event.metrics[metric.name])
                    self.curves[event.trial].setdefault(event.step, loss)
            case Ended() | Failed() if event.order in self.began:
                if isinstance(event, Failed):
                    self.failures[event.order] = event
                self.ended[event.order] = event.time
                self.freed.append(event.time)
            case Finished() | Suspended() if self.freed:
                self.closes_s.append(event.time - max(self.freed))

    def _begin(self, order: Order, time: float) -> None:
        self.orders[order.id], self.began[order.id] = order, time
        if self.attached is not None:
            self.starts_s.append(time - self.attached)
            self.attached = None
        if self.freed:
            self.pauses_s.append(time - self.freed.pop())
        else:
            self.slots += 1
            self.cold.add(order.id)
        self.most = max(self.most, len(self.began) - len(self.ended))


def read(
    spec: SweepSpec, events: Iterable[Event], origin: Origin, name: str = ""
) -> Evidence | None:
    """Return what a sweep's events show; None: no trial of it reported or ended.

    Args:
        spec: the sweep's own.
        name: its id.
    """
    seen = _Reading()
    for event in events:
        seen.apply(event, spec)
    times = _trial_times(seen, spec.last_step is None)
    if not times:
        return None
    first_s, later_s = _overheads(seen, times)
    own = [failure for failure in seen.failures.values() if failure.cause in OWN]
    begun = {order.trial for order in seen.orders.values()}
    curves = [curve for curve in seen.curves.values() if any(map(math.isfinite, curve.values()))]
    speed_rank, pairs = _speed_and_loss(seen, times)
    return Evidence(
        origin,
        (name,) if name else (),
        tuple(times.values()),
        first_s,
        later_s,
        tuple(seen.pauses_s),
        tuple(seen.starts_s),
        tuple(seen.closes_s),
        trials=len(begun),
        orders=len(seen.orders),
        steps=sum(len(curve) for curve in seen.curves.values()),
        lost=len(seen.failures) - len(own),
        failed_at_once=len({failure.trial for failure in own} - seen.curves.keys()),
        failed_later=len({failure.trial for failure in own} & seen.curves.keys())
        + len(seen.curves)
        - len(curves),
        slots=seen.most or None,
        checkpoint=seen.largest or None,
        curves=_curves(curves),
        speed_rank=speed_rank,
        speed_pairs=pairs,
    )


def join(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of several sweeps as that of one, the newest first."""
    newest = parts[0]

    def all_of(name: str) -> tuple[Any, ...]:
        return tuple(value for part in parts for value in getattr(part, name))

    def total(name: str) -> int:
        return sum(getattr(part, name) for part in parts)

    sizes = [part.checkpoint for part in parts if part.checkpoint is not None]
    return replace(
        newest,
        names=all_of("names"),
        step_s=all_of("step_s"),
        first_s=all_of("first_s"),
        later_s=all_of("later_s"),
        pauses_s=all_of("pauses_s"),
        start_s=all_of("start_s"),
        close_s=all_of("close_s"),
        trials=total("trials"),
        orders=total("orders"),
        steps=total("steps"),
        lost=total("lost"),
        failed_at_once=total("failed_at_once"),
        failed_later=total("failed_later"),
        checkpoint=max(sizes, default=None),
        curves=next((part.curves for part in parts if part.curves is not None), None),
        other_setup=any(part.other_setup for part in parts),
    )


def _trial_times(seen: _Reading, whole: bool) -> dict[str, float]:
    """Return the seconds per step of each trial; of whole trials, those of the completed orders.

    The first report of an order contains its start; it counts only for trials that show no other.
    """
    seconds: dict[str, float] = defaultdict(float)
    steps: dict[str, int] = defaultdict(int)
    short: dict[str, list[float]] = defaultdict(list)
    for number, began in seen.began.items():
        trial, reports = seen.orders[number].trial, seen.reports.get(number, [])
        ended = seen.ended.get(number)
        if whole:
            if ended is not None and number not in seen.failures:
                short[trial].append(ended - began)
            continue
        if len(reports) > 1:
            seconds[trial] += reports[-1][0] - reports[0][0]
            steps[trial] += reports[-1][1] - reports[0][1]
        elif reports:
            done = reports[0][1] - seen.orders[number].first + 1
            short[trial].append((reports[0][0] - began) / max(done, 1))
    times = {trial: seconds[trial] / steps[trial] for trial in steps if steps[trial]}
    start_s = _start_within(seen, times)
    for trial, values in short.items():
        if trial not in times:
            times[trial] = max(mean(values) - (0.0 if whole else start_s), 0.05 * mean(values))
    return {trial: value for trial, value in times.items() if value > 0}


def _start_within(seen: _Reading, times: dict[str, float]) -> float:
    """Return how much longer an order's first report takes than its steps, at the median."""
    extra = [
        reports[0][0] - seen.began[number] - times[order.trial] * (reports[0][1] - order.first + 1)
        for number, order in seen.orders.items()
        if number in seen.began and (reports := seen.reports.get(number)) and order.trial in times
    ]
    return max(median(extra), 0.0) if extra else 0.0


def _overheads(
    seen: _Reading, times: dict[str, float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the seconds of orders beyond their steps: of first orders on a slot, and of others."""
    first: list[float] = []
    later: list[float] = []
    for number, ended in seen.ended.items():
        order, reports = seen.orders[number], seen.reports.get(number)
        if reports and order.trial in times and number not in seen.failures:
            done = reports[-1][1] - order.first + 1
            taken = ended - seen.began[number] - times[order.trial] * done
            (first if number in seen.cold else later).append(taken)
    return tuple(first), tuple(later)


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


def _speed_and_loss(seen: _Reading, times: dict[str, float]) -> tuple[float, int]:
    """Return the rank correlation of seconds per step and the loss at the first common step."""
    losses = {trial: curve[min(curve)] for trial, curve in seen.curves.items() if trial in times}
    pairs = [(times[trial], loss) for trial, loss in losses.items() if math.isfinite(loss)]
    if len(pairs) < FEW or len({time for time, _ in pairs}) < 2 or len({y for _, y in pairs}) < 2:
        return 0.0, 0
    seconds, values = zip(*pairs, strict=True)
    ranks = np.array([np.argsort(np.argsort(each)) for each in (seconds, values)], dtype=float)
    return float(np.corrcoef(ranks)[0, 1]), len(pairs)
