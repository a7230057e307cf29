"""What the server's routes cost: answers at few and at many events, memory, events to listeners.

`python benchmarks/server.py` prints Markdown. The server is `hposvc serve` on a home with sweeps of
several lengths; clients are threads of this process, each with a connection of its own.
"""

import argparse
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from agents_exchange import await_port, free_port
from long_journals import record
from tables import figure, heading, table

LENGTHS = {"short": (10, 10), "long": (100, 333), "longest": (100, 1000)}  # trials, steps
ROUTES = (
    "/healthz",
    "/api/v1/sweeps",
    "/api/v1/sweeps/{sweep}",
    "/api/v1/sweeps/{sweep}/best",
    "/api/v1/sweeps/{sweep}/trials?limit=50",
    "/api/v1/sweeps/{sweep}/trials/t0001",
    "/api/v1/sweeps/{sweep}/trials/t0001/audit",
    "/api/v1/sweeps/{sweep}/events?since=0&limit=100",
    "/metrics",
)
HEAVY = ("audit",)  # routes that read all events of a sweep: each client asks once
LISTENERS = 20
EVENTS_S = 60.0  # for all listeners to have all events


class Client:
    """A connection that asks one thing after the other."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, path: str) -> tuple[float, bytes]:
        """Return the milliseconds until the answer was read, and the answer."""
        began = time.perf_counter()
        self._line.request("GET", path)
        response = self._line.getresponse()
        body = response.read()
        assert response.status == 200, (path, response.status, body[:200])
        return 1e3 * (time.perf_counter() - began), body


def route_times(port: int, path: str, clients: int, asks: int) -> list[float]:
    """Return the milliseconds of each answer, of clients that ask at once."""

    def ask(_: int) -> list[float]:
        client = Client(port)
        return [client.get(path)[0] for _ in range(asks)]

    with ThreadPoolExecutor(clients) as pool:
        return [ms for part in pool.map(ask, range(clients)) for ms in part]


def listen(port: int, sweep: str, last: int, ends: list[float], counts: list[int]) -> None:
    """Read a sweep's events as they come, until number `last`."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=EVENTS_S)
    line.request(
        "GET", f"/api/v1/sweeps/{sweep}/events?since=0", headers={"Accept": "text/event-stream"}
    )
    response, count = line.getresponse(), 0
    for raw in response:
        if raw.startswith(b"id:"):
            count += 1
            if int(raw[3:]) >= last:
                break
    ends.append(time.perf_counter())
    counts.append(count)


def fan_out(port: int, sweep: str, last: int) -> tuple[float, bool]:
    """Return the events a second to all listeners together, and whether each had every event."""
    ends: list[float] = []
    counts: list[int] = []
    began = time.perf_counter()
    threads = [
        threading.Thread(target=listen, args=(port, sweep, last, ends, counts))
        for _ in range(LISTENERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(EVENTS_S)
    rate = sum(counts) / (max(ends) - began)
    return rate, counts == [last] * LISTENERS


def memory_mib(pid: int) -> float:
    """Return the server's memory that no other process shares."""
    return float(psutil.Process(pid).memory_full_info().uss) / 2**20


def show_routes(port: int, lengths: dict[str, int], clients: int, asks: int) -> None:
    """Print a row a route: p50 and p99 for each length of the sweep that is asked about."""
    rows = []
    for route in ROUTES:
        cells: list[str] = []
        medians = []
        for sweep in lengths if "{sweep}" in route else list(lengths)[:1]:
            path = route.format(sweep=sweep)
            Client(port).get(path)  # folds it, where that was not done yet
            times = route_times(port, path, clients, 1 if route.endswith(HEAVY) else asks)
            medians.append(float(np.median(times)))
            cells += [figure(medians[-1], 1), figure(float(np.percentile(times, 99)), 1)]
        cells += ["–"] * (2 * len(lengths) - len(cells))
        ratio = figure(medians[-1] / medians[0]) if medians[1:] else "–"
        rows.append([f"`{route.partition('?')[0]}`", *cells, ratio])
    columns = [name for events in lengths.values() for name in (f"p50, {events:,} events", "p99")]
    print(f"Milliseconds until an answer is read; {clients} clients ask at once.\n")
    print(table(("route", *columns, "last to first"), rows))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--asks", type=int, default=100, help="of each client, a route")
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    chosen = parser.parse_args(arguments)
    asks = 5 if chosen.quick else chosen.asks
    print(heading(("fastapi", "uvicorn", "SQLAlchemy")))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sizes = dict(list(LENGTHS.items())[: 2 if chosen.quick else 3])
        lengths = {name: record(home, name, *size) for name, size in sizes.items()}
        port = free_port()
        path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
        server = subprocess.Popen(
            [sys.executable, "-m", "hposvc", "serve", "--port", f"{port}"],
            env={**os.environ, "HPOSVC_HOME": folder, "PYTHONPATH": path},
        )
        try:
            await_port(port)
            Client(port).get("/healthz")
            before = memory_mib(server.pid)
            show_routes(port, lengths, chosen.clients, asks)
            folded = memory_mib(server.pid)
            sweep, last = list(lengths.items())[-1 if chosen.quick else 1]
            rates: list[Any] = [fan_out(port, sweep, last) for _ in range(1 if chosen.quick else 3)]
            after = memory_mib(server.pid)
        finally:
            server.terminate()
            server.wait()
    best = [figure(rate, 0) for rate, _ in rates]
    whole = all(complete for _, complete in rates)
    print(
        f"{LISTENERS} listeners (server-sent events) read {last:,} events each: "
        f"{', '.join(best)} events a second to all; every one had all, once: {whole}.\n"
    )
    print(
        f"Memory of the server: {before:.0f} MiB at the start, {folded:.0f} MiB with "
        f"{sum(lengths.values()):,} events folded, {after:.0f} MiB at the end.\n"
    )


if __name__ == "__main__":
    main()
