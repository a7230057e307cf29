"""A sweep's metrics on Ray's metrics endpoint, for Prometheus and Grafana.

Ray puts `ray_` before each name. cluster/deploy/grafana.json plots these metrics; a test keeps the
two in step. The cost of an update does not grow with the number of trials.
"""

import time
from collections.abc import Sequence

import ray
from ray.util.metrics import Counter, Gauge

from hposvc.events import Event
from hposvc.spec import SweepSpec
from hposvc.state.driver_clock import DriverClock
from hposvc.state.summary import bests
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialPhase

EVERY_S = 1.0  # between two updates; Ray exports metrics every ten seconds
STATES: tuple[TrialPhase, ...] = (
    *("PENDING", "RUNNING", "PAUSED"),
    *("COMPLETED", "STOPPED", "FAILED"),
)
TAGS = ("sweep", "project")

TRIALS = "hposvc_trials"
BEST = "hposvc_best_value"
SLOTS = "hposvc_slots_busy"
ORDERS = "hposvc_orders_total"
RANK_SECONDS = "hposvc_rank_seconds_total"
GPU_SECONDS = "hposvc_gpu_seconds_total"


class RayMetrics:
    """Keeps the metrics of a running sweep up to date; a Watcher of the runner."""

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        tags = {"sweep": sweep, "project": spec.project}
        self._gpus = spec.resources.gpus_per_worker
        self._trials = _gauge(TRIALS, "Trials of the sweep in a state.", tags, "state")
        self._best = _gauge(BEST, "The best value so far of each metric.", tags, "metric")
        self._objectives = spec.objectives
        self._slots = _gauge(SLOTS, "Slots that carry out an order.", tags)
        self._orders = _Total(ORDERS, "Orders that were given to slots.", tags)
        self._rank_s = _Total(RANK_SECONDS, "Seconds that ranks were at work.", tags)
        self._gpu_s = _Total(GPU_SECONDS, "Seconds that GPUs were held by orders.", tags)
        self._updated_at = -EVERY_S
        self._clock = DriverClock()

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Update the metrics, at most every `EVERY_S`; called after the events are durable."""
        now, at = time.monotonic(), self._clock.now(state)
        due = state.finished or now - self._updated_at >= EVERY_S
        if due and ray.is_initialized():
            self._updated_at = now
            self._update(state, at)

    def _update(self, state: SweepState, now: float) -> None:
        for phase in STATES:
            self._trials.set(state.trials.counts.get(phase, 0), {"state": phase})
        for metric, value in zip(self._objectives, bests(state), strict=False):
            self._best.set(value, {"metric": metric.name})
        self._slots.set(len(state.trials.orders))
        self._orders.reach(state.next_order - 1)
        rank_s = state.rank_s_at(now)
        self._rank_s.reach(rank_s)
        self._gpu_s.reach(rank_s * self._gpus)


class _Total:
    """A counter that is set to a total, since Ray's counters can only be added to."""

    def __init__(self, name: str, description: str, tags: dict[str, str]) -> None:
        self._counter = Counter(name, description, tag_keys=TAGS)
        self._counter.set_default_tags(tags)
        self._counted = 0.0

    def reach(self, total: float) -> None:
        """Raise the counter to `total`; a smaller total changes nothing."""
        if total > self._counted:
            self._counter.inc(total - self._counted)
            self._counted = total


def _gauge(name: str, description: str, tags: dict[str, str], *more: str) -> Gauge:
    gauge = Gauge(name, description, tag_keys=(*TAGS, *more))
    gauge.set_default_tags(tags)
    return gauge
