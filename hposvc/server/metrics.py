"""Metrics of the server for Prometheus; no label has text of users, which would have no bound."""

import time
from collections import Counter as Count
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from threading import Lock

import psutil
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hposvc.journal.census import take
from hposvc.journal.journal import SweepRow
from hposvc.server.folded import Unreadable
from hposvc.server.principal import Principal
from hposvc.server.service import Service
from hposvc.verbs.ls import ls_rows

COUNTED_S = 10.0  # for which a count of all sweeps stands
UNKNOWN = "other"  # the route of a request that no route takes
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


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
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._service, self._census = service, _Census(service)
        self.registry.register(_SweepsSeen(self._census, lambda row: True))
        self.registry.register(_Server(service))

    def text(self, caller: Principal) -> bytes:
        """Return metrics in Prometheus' text format: all, or of the sweeps of a member."""
        if caller.sees_all:
            return generate_latest(self.registry)
        seen = CollectorRegistry()
        seen.register(_SweepsSeen(self._census, partial(self._service.sees, caller)))
        return generate_latest(seen)


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


class _Census:
    """Counts what the journal has, when Prometheus asks."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._lock = Lock()
        self._counted_at = -COUNTED_S
        self._sweeps: list[tuple[SweepRow, str, int]] = []  # with states and running trials

    def families(self, sees: Callable[[SweepRow], bool]) -> Iterator[Metric]:
        """Yield metrics of sweeps as of now; states as of ten seconds ago at most."""
        census = take(self.service.sweeps.journal.store)
        with self._lock:
            if time.monotonic() - self._counted_at >= COUNTED_S:
                self._sweeps = list(self._count(census.driven))
                self._counted_at = time.monotonic()
            counted = self._sweeps
        seen = [(row, state, running) for row, state, running in counted if sees(row)]
        sweeps = GaugeMetricFamily("hposvc_sweeps", "Sweeps by state.", labels=["state"])
        for state, count in sorted(Count(state for _, state, _ in seen).items()):
            sweeps.add_metric([state], count)
        yield sweeps
        names = {row.id for row, _, _ in seen}
        running = sum(running for _, _, running in seen)
        leased = sum(count for name, count in census.leased.items() if name in names)
        yield from _gauges(
            {
                "trials_running": ("Trials of driven sweeps that have ranks.", running),
                "drivers_alive": ("Sweeps that have a living driver.", len(names & census.driven)),
                "agents_leased": ("Trials that agents have.", leased),
            }
        )

    def _count(self, driven: Collection[str]) -> Iterator[tuple[SweepRow, str, int]]:
        """Count sweeps and running trials, without reading the events of ended sweeps."""
        rows = self.service.sweeps.journal.sweeps()
        listed = ls_rows(self.service.sweeps, rows, self.service.folded.followers.look)
        states = {row["sweep"]: row["state"] for row in listed}
        for row in rows:
            if row.id not in states:  # deleted meanwhile
                continue
            running = 0
            if row.id in driven:
                with suppress(Unreadable), self.service.folded.open(row) as sweep:
                    running = len(sweep.look().running())
            yield row, states[row.id], running


class _SweepsSeen(Collector):
    """The metrics of those sweeps that a caller may see."""

    def __init__(self, census: _Census, sees: Callable[[SweepRow], bool]) -> None:
        self._census, self._sees = census, sees

    def describe(self) -> list[Metric]:
        """Return nothing: what there is shows when it is counted."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as of now."""
        yield from self._census.families(self._sees)


class _Server(Collector):
    """The server's own figures."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Return nothing: what there is shows when it is counted."""
        return []

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
                "memory_bytes": ("Memory of the server.", psutil.Process().memory_info().rss),
            }
        )
        text = "Events read for listeners, each once for all of them."
        yield CounterMetricFamily("hposvc_events_read", text, value=feed.encoded)


def _gauges(values: Mapping[str, tuple[str, float]]) -> Iterator[Metric]:
    for name, (text, value) in values.items():
        yield GaugeMetricFamily(f"hposvc_{name}", text, value=value)
