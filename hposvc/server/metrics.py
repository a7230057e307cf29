"""Metrics of the server and of its sweeps, for Prometheus.

What bounds the number of series: routes, methods and states are those of the code. Sweeps have
series of their own while they have a driver, of which the operator bounds the number, and for an
hour after (`RECENT_S`), then `MOST_RECENT` of them at most. Project and owner follow from the
sweep, and a spec has four metrics at most.
"""

import time
from collections import Counter as Count
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from threading import Lock
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hposvc.events import DriverState
from hposvc.journal import submissions, supervision
from hposvc.journal.census import take
from hposvc.journal.journal import SweepRow
from hposvc.server.folded import Unreadable
from hposvc.server.principal import Principal
from hposvc.server.service import Service
from hposvc.state import summary
from hposvc.state.sweep import SweepState
from hposvc.verbs.queue import QueueRow, queue_rows
from hposvc.verbs.reading import ls_rows

COUNTED_S = 10.0  # for which a count of all sweeps stands
RECENT_S = 3600.0  # since a sweep was created or had a driver: it still has series of its own
MOST_RECENT = 100  # sweeps without a driver that have series of their own
UNKNOWN = "other"  # the route of a request that no route takes
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
LABELS = ("sweep", "project", "owner")  # of the metrics of one sweep
IN_QUEUE = ("queue", "user")  # further labels of a sweep that shares a cluster
# Of each metric of one sweep: its kind, HELP text, and labels beside `LABELS`.
OF_A_SWEEP: Mapping[
    str, tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str, tuple[str, ...]]
] = {
    "trials": (GaugeMetricFamily, "Trials of the sweep by state.", ("state",)),
    "best_value": (GaugeMetricFamily, "Best value so far, of each metric.", ("metric",)),
    "progress_timestamp_seconds": (GaugeMetricFamily, "When the sweep last made progress.", ()),
    "rank_seconds": (CounterMetricFamily, "Seconds that ranks were at work.", ()),
    "gpu_seconds": (CounterMetricFamily, "GPU-seconds: GPUs that ranks held, times seconds.", ()),
    "energy_joules": (CounterMetricFamily, "Energy that trials used, as far as measured.", ()),
    "cost": (CounterMetricFamily, "Money spent, by the prices of the spec.", ("currency",)),
    "slots_wanted": (GaugeMetricFamily, "Slots that the sweep could use now.", IN_QUEUE),
    "slots_held": (GaugeMetricFamily, "Slots that the sweep holds.", IN_QUEUE),
    "slots_allowed": (GaugeMetricFamily, "Slots that the sweep may hold by its share.", IN_QUEUE),
    "due_gpus": (
        GaugeMetricFamily,
        "GPUs due to the sweep; CPUs, if there are none.",
        IN_QUEUE,
    ),
    "ahead_gpu_seconds": (
        GaugeMetricFamily,
        "GPU-seconds that the sweep had beyond its due; below 0: fewer.",
        IN_QUEUE,
    ),
    "slot_wait_seconds": (
        GaugeMetricFamily,
        "How long the sweep, which has no slot, has waited for one; 0: it does not wait.",
        IN_QUEUE,
    ),
}


class Metrics:
    """The metrics of one server."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self.requests = Counter(
            *("hposvc_requests", "Requests by their answer."),
            (*labels, "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            *(
                "hposvc_request_seconds",
                "Time until the answer begins, with waits for events.",
            ),
            labels,
            unit="seconds",
            buckets=BUCKETS,
            registry=self.registry,
        )
        build = Info("hposvc_build", "Version of the server.", registry=self.registry)
        build.info({"version": version("hposvc")})
        ProcessCollector(registry=self.registry)
        self._service, self._counter = service, _SweepCounter(service)
        self.registry.register(_SweepsSeen(self._counter, lambda row: True))
        self.registry.register(_Server(service))

    def seen_by(self, caller: Principal) -> CollectorRegistry:
        """Return what a caller may see: all metrics, or those of the sweeps of a member."""
        if caller.sees_all:
            return self.registry
        seen = CollectorRegistry()
        seen.register(_SweepsSeen(self._counter, partial(self._service.sees, caller)))
        return seen


class Measured:
    """Middleware that counts requests, and times their answers."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun = time.perf_counter()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path_format", UNKNOWN)
                labels = scope["method"] if route != UNKNOWN else UNKNOWN, route
                self.metrics.requests.labels(*labels, message["status"]).inc()
                self.metrics.seconds.labels(*labels).observe(time.perf_counter() - begun)
            await send(message)

        await self.app(scope, receive, measured)


class _Counted(NamedTuple):
    """The figures of a sweep, and how long they are fresh."""

    row: SweepRow
    state: str
    running: int = 0  # trials
    labels: tuple[str, ...] = ()  # values of `LABELS`
    # Name, further labels and value of each; empty: the sweep has no series of its own.
    samples: Sequence[tuple[str, tuple[str, ...], float]] = ()


class _SweepCounter:
    """Counts what the journal has, when Prometheus asks."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._lock = Lock()
        self._counted_at = -COUNTED_S
        self._sweeps: list[_Counted] = []
        self._driven_at: dict[str, float] = {}  # seconds of the epoch, of recent drivers

    def families(self, sees: Callable[[SweepRow], bool]) -> Iterator[Metric]:
        """Yield metrics of sweeps as of now; states as of ten seconds ago at most."""
        store = self.service.sweeps.journal.store
        census = take(store)
        with self._lock:
            if time.monotonic() - self._counted_at >= COUNTED_S:
                self._sweeps = list(self._count(census.driven))
                self._counted_at = time.monotonic()
            counted = self._sweeps
        seen = [sweep for sweep in counted if sees(sweep.row)]
        yield _by_state("sweeps", "Sweeps by state.", seen)
        since = {
            asked.sweep: asked.since
            for asked in supervision.supervised(store)
            if asked.driver.state != "alive"
        }
        waiting = [sweep for sweep in seen if sweep.row.id in since]
        text = "Sweeps that are to have a driver and have none, by state; QUEUED: not yet."
        yield _by_state("sweeps_without_driver", text, waiting)
        names = {sweep.row.id for sweep in seen}
        leased = sum(count for name, count in census.leased.items() if name in names)
        queued = (since[sweep.row.id] for sweep in waiting if sweep.state == "QUEUED")
        yield from _gauges(
            {
                "trials_running": (
                    "Trials of driven sweeps that have ranks.",
                    sum(sweep.running for sweep in seen),
                ),
                "drivers_alive": ("Sweeps that have a living driver.", len(names & census.driven)),
                "agents_leased": ("Trials that agents have.", leased),
                "driver_wait_seconds": (
                    "The longest time that a sweep has waited for its first driver.",
                    max((time.time() - asked for asked in queued), default=0.0),
                ),
            }
        )
        yield from _of_each_sweep(seen)

    def _count(self, driven: frozenset[str]) -> Iterator[_Counted]:
        """Count sweeps and their trials, reading no events of those that ended long ago."""
        service = self.service
        rows = service.sweeps.journal.sweeps()
        listed = ls_rows(service.sweeps, rows, service.folded.followers.look)
        states = {row.sweep: row.state for row in listed}
        shown = {*driven, *self._recent(rows, driven)}
        store = service.sweeps.journal.store
        owners = submissions.owners(store, shown)
        queued = {each.sweep: each for each in queue_rows(store) if each.wanted is not None}
        for row in rows:
            if row.id not in states:  # deleted meanwhile
                continue
            counted = _Counted(row, states[row.id])
            if row.id in shown:
                driver: DriverState = "alive" if row.id in driven else "none"
                labels = row.id, row.project, owners.get(row.id, "")
                with suppress(Unreadable), service.folded.open(row) as sweep:
                    state = sweep.look()
                    running = len(state.running()) if row.id in driven else 0
                    samples = [*_samples(state, driver), *_queue_samples(queued.get(row.id))]
                    counted = _Counted(row, states[row.id], running, labels, samples)
            yield counted

    def _recent(self, rows: Sequence[SweepRow], driven: frozenset[str]) -> list[str]:
        """Return the newest sweeps that were created, or had a driver, a short time ago."""
        now = time.time()
        self._driven_at |= dict.fromkeys(driven, now)
        self._driven_at = {name: at for name, at in self._driven_at.items() if now - at < RECENT_S}
        recent = (
            row.id for row in rows if row.id in self._driven_at or now - row.created < RECENT_S
        )
        return [name for name in recent if name not in driven][:MOST_RECENT]


def _samples(
    state: SweepState, driver: DriverState
) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield name, further labels and value of the metrics of one sweep."""
    for phase, count in summary.counted(state, driver).items():
        yield "trials", (phase,), count
    for metric, value in zip(state.spec.objectives, summary.bests(state), strict=False):
        yield "best_value", (metric.name,), value
    if state.alerts.progressed:
        yield "progress_timestamp_seconds", (), state.alerts.progressed
    yield "rank_seconds", (), state.rank_s
    yield "gpu_seconds", (), state.gpu_hours * 3600
    if state.energy_kwh is not None:
        yield "energy_joules", (), state.energy_kwh * 3.6e6
    if state.money is not None:
        yield "cost", (state.spec.price.currency,), state.money


def _queue_samples(
    row: QueueRow | None,
) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield name, further labels and value of the metrics of one sweep in the queue.

    Args:
        row: of `queue_rows`; None: the sweep shares no cluster now.
    """
    if row is None:
        return
    labels = (row.queue or "", row.user or "")
    figures = {
        "slots_wanted": row.wanted,
        "slots_held": row.held,
        "slots_allowed": row.slots,
        "due_gpus": row.due,
        "ahead_gpu_seconds": row.ahead_s,
        "slot_wait_seconds": max(0.0, time.time() - row.waiting.since) if row.waiting else 0.0,
    }
    yield from ((name, labels, value) for name, value in figures.items() if value is not None)


def _of_each_sweep(sweeps: Sequence[_Counted]) -> Iterator[Metric]:
    families = {
        name: kind(f"hposvc_sweep_{name}", text, labels=(*LABELS, *more), unit=_unit(name))
        for name, (kind, text, more) in OF_A_SWEEP.items()
    }
    for sweep in sweeps:
        for name, more, value in sweep.samples:
            families[name].add_metric((*sweep.labels, *more), value)
    yield from families.values()


def _by_state(name: str, text: str, sweeps: Sequence[_Counted]) -> Metric:
    family = GaugeMetricFamily(f"hposvc_{name}", text, labels=["state"])
    for state, count in sorted(Count(sweep.state for sweep in sweeps).items()):
        family.add_metric([state], count)
    return family


class _SweepsSeen(Collector):
    """The metrics of those sweeps that a caller may see."""

    def __init__(self, counter: _SweepCounter, sees: Callable[[SweepRow], bool]) -> None:
        self._counter, self._sees = counter, sees

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of now."""
        yield from self._counter.families(self._sees)


class _Server(Collector):
    """The server's own figures."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of now."""
        service, feed = self._service, self._service.feed
        folded = service.folded.followers.events
        yield from _gauges(
            {
                "event_listeners": ("Requests that wait for events.", feed.listeners),
                "requests_waiting": ("Requests in line for a thread.", service.turns.waiting),
                "feed_lag_seconds": ("Since new events were looked for.", feed.lag_s),
                "folded_events": ("Events behind the states in memory.", folded),
            }
        )
        text = "Events read for listeners, each once for all of them."
        yield CounterMetricFamily("hposvc_events_read", text, value=feed.encoded)


def _gauges(values: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    for name, (text, value) in values.items():
        yield GaugeMetricFamily(f"hposvc_{name}", text, value=value, unit=_unit(name))


def _unit(name: str) -> str:
    return "seconds" if name.endswith("_seconds") else ""
