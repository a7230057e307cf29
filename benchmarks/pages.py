"""What the page of a long sweep costs its server, while many people look at it.

`python benchmarks/pages.py` prints Markdown. A sweep of 10,000 trials goes on; 50 listeners follow
its page as static/page.js does: each event is heard, the page is read again at most once a second
and after a rest of four times as long as it took, and charts every five seconds.
"""

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from tables import heading, table

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Attached, Decided, Ended, Event, Ordered, Proposed, Reported
from trainables.order import Order

SWEEP = "long"
CHARTS = ("best", "importance")  # on the first screen
LEAST_S, SHARE, CHARTS_S = 1.0, 4, 5.0
GAP_S = 0.5  # between two events
HTML = {"Accept": "text/html"}


def curve(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return the loss of a step, and its seconds."""
    return {"loss": (params["lr"] - 0.01) ** 2 + 16 / params["width"] + 1 / step}, 1.0


def events_of(number: int) -> Iterator[Event]:
    """Yield the events of a trial of one to three steps, which a scheduler stopped."""
    trial, begun = f"t{number:04d}", float(number)
    params: dict[str, Any] = {
        "lr": 10.0 ** -(1 + number * 0.618 % 4),
        "width": (32, 64, 128)[number % 3],
    }
    yield Proposed(begun, trial, params, {}, 9)
    yield Ordered(begun, Order(number, trial, params, None, first=1, until=9))
    for step in range(1, 2 + number % 3):
        yield Reported(begun + step, number, trial, step, curve(params, step)[0])
    yield Decided(begun + 4, trial, number, 1 + number % 3, "stop", "rung", "rank 9 of 9")
    yield Ended(begun + 4, number, trial)


def record(home: Path, trials: int) -> api.Sweeps:
    """Record a sweep that is not over."""
    sweeps = api.Sweeps.open(home)
    spec = specs.load(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"min": 1, "max": 9},
            "parameters": {
                "lr": {"min": 1e-5, "max": 1.0, "log": True},
                "width": {"values": [32, 64, 128]},
            },
            "trials": {"max": 10 * trials},
            "scheduler": "asha",
            "engine": {"type": "simulate", "curve": "pages:curve"},
        }
    )
    api.create(sweeps, spec, SWEEP)
    events = [event for number in range(1, trials + 1) for event in events_of(number)]
    sweeps.journal.append(SWEEP, 0, [Attached(1.0, "here:1"), *events])
    return sweeps


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Yield the address and the process of a server."""
    command = [sys.executable, "-m", "hposvc", "ui", "--no-browser"]
    environment = {**os.environ, "HPOSVC_HOME": f"{home}"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        address = next(
            found.group() for line in child.stderr if (found := re.search(r"http://[\d.:]+", line))
        )
        try:
            yield address, psutil.Process(child.pid)
        finally:
            child.terminate()


@dataclass
class Listeners:
    """What all listeners together have seen."""

    address: str
    heard: dict[int, list[float]] = field(default_factory=dict)  # when, by the event's number
    refreshes: list[float] = field(default_factory=list)  # seconds
    newest: int = 0
    refused: int = 0

    async def listen(self, client: httpx.AsyncClient, since: int) -> None:
        """Hear events as a browser does."""
        asked = {"since": since, "follow": "true"}
        url = f"/api/v1/sweeps/{SWEEP}/events"
        headers = {"Accept": "text/event-stream"}
        async with client.stream("GET", url, params=asked, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("id:"):
                    seq = int(line[3:])
                    self.heard.setdefault(seq, []).append(time.monotonic())
                    self.newest = max(self.newest, seq)

    async def refresh(self, client: httpx.AsyncClient) -> None:
        """Read the page again whenever there is something new."""
        shown, charted = 0, 0.0
        while True:
            if self.newest <= shown:
                await asyncio.sleep(0.05)
                continue
            wanted, begun = self.newest, time.monotonic()
            answer = await client.get(f"/sweeps/{SWEEP}", headers=HTML)
            self.refused += answer.status_code != 200
            took = time.monotonic() - begun
            self.refreshes.append(took)
            shown = wanted
            if time.monotonic() - charted > CHARTS_S:
                charted = time.monotonic()
                for kind in CHARTS:
                    await client.get(f"/sweeps/{SWEEP}/charts/{kind}", headers=HTML)
            await asyncio.sleep(max(LEAST_S, SHARE * took))


async def follow(
    address: str, sweeps: api.Sweeps, trials: int, count: int, seconds: float
) -> tuple[Listeners, dict[int, float]]:
    """Let listeners follow the sweep while it goes on; return what they saw, and what was said."""
    listeners, said = Listeners(address), {}
    last = sweeps.journal.last(SWEEP)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        tasks = [
            asyncio.create_task(work)
            for _ in range(count)
            for work in (listeners.listen(client, last), listeners.refresh(client))
        ]
        await asyncio.sleep(2)
        until, number = time.monotonic() + seconds, trials
        while time.monotonic() < until:
            number += 1
            for event in events_of(number):
                await asyncio.to_thread(sweeps.journal.append, SWEEP, last, [event])
                last += 1
                said[last] = time.monotonic()
                await asyncio.sleep(GAP_S)
        await asyncio.sleep(3)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return listeners, said


def look(address: str, path: str) -> tuple[float, float, int]:
    """Return the seconds to the first byte of a page and to its last one, and its bytes."""
    with httpx.Client(base_url=address, timeout=300, headers=HTML) as client:
        begun = time.monotonic()
        with client.stream("GET", path) as answer:
            first = time.monotonic() - begun
            size = sum(len(part) for part in answer.iter_raw())
        return first, time.monotonic() - begun, size


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def measure(folder: Path, trials: int, count: int, seconds: float) -> list[list[str]]:
    """Return the rows of the table."""
    sweeps = record(folder, trials)
    with serving(folder) as (address, process):
        empty = process.memory_info().rss
        cold = look(address, f"/sweeps/{SWEEP}")
        warm = [look(address, f"/sweeps/{SWEEP}") for _ in range(10)]
        charts = {kind: look(address, f"/sweeps/{SWEEP}/charts/{kind}")[1] for kind in CHARTS}
        before, begun = cpu_s(process), time.monotonic()
        listeners, said = asyncio.run(follow(address, sweeps, trials, count, seconds))
        used, wall = cpu_s(process) - before, time.monotonic() - begun
        full = process.memory_info().rss
    delays = sorted(
        at - said[seq] for seq, times in listeners.heard.items() if seq in said for at in times
    )
    heard = sum(len(listeners.heard.get(seq, ())) for seq in said)
    refreshes = sorted(listeners.refreshes)
    return [
        ["page, first time: s to first byte", f"{cold[0]:.2f}"],
        ["page, again: s to first byte, median", f"{statistics.median(w[0] for w in warm):.3f}"],
        ["page: kB", f"{warm[0][2] / 1e3:.0f}"],
        *([f"chart {kind}, first time: s", f"{took:.2f}"] for kind, took in charts.items()),
        ["events, each to all listeners", f"{len(said)}"],
        ["heard, of those sent", f"{heard} of {len(said) * count}"],
        ["s until heard, median; 95 %", f"{_share(delays, 0.5):.3f}; {_share(delays, 0.95):.3f}"],
        ["pages read again; refused", f"{len(refreshes)}; {listeners.refused}"],
        ["s for one, median; 95 %", f"{_share(refreshes, 0.5):.2f}; {_share(refreshes, 0.95):.2f}"],
        ["server's CPU, cores", f"{used / wall:.2f}"],
        ["server's CPU for an event, s", f"{used / max(1, len(said)):.2f}"],
        ["server's memory, MiB, before; after", f"{empty >> 20}; {full >> 20}"],
    ]


def _share(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--listeners", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    print(heading())
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), arguments.trials, arguments.listeners, arguments.seconds)
    print(table(["what", "figure"], rows))


if __name__ == "__main__":
    main()
