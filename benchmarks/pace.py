"""From the ends of many trials to a rate, and to what an order costs early and late."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType

import numpy as np
from apart import Figures

SAMPLE_S = 0.02


@dataclass
class CpuClock:
    """Samples this process's CPU time from a thread, so that nobody else need call it."""

    times: list[float] = field(default_factory=list)  # seconds since the epoch
    spent: list[float] = field(default_factory=list)  # CPU seconds, all threads
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "CpuClock":
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def at(self, time_s: float) -> float:
        """CPU seconds spent until then."""
        return float(np.interp(time_s, self.times, self.spent))

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.times.append(time.time())
            self.spent.append(time.process_time())


def pace(ends: Sequence[float], slots: int, clock: CpuClock) -> Figures:
    """Rate and cost of orders, from the end of the last slot's first order (see noop.py).

    Args:
        ends: when each order ended, seconds since the epoch.

    Returns:
        `rate`: orders a second; `wall_ms`, `cpu_ms`: per order, in each fifth of the orders.
    """
    times = sorted(ends)[slots - 1 :]
    marks = [times[round(share * (len(times) - 1))] for share in np.linspace(0, 1, 6)]
    orders = (len(times) - 1) / 5
    cpu = [clock.at(mark) for mark in marks]
    return {
        "rate": (len(times) - 1) / (times[-1] - times[0]),
        "wall_ms": [1e3 * (b - a) / orders for a, b in pairwise(marks)],
        "cpu_ms": [1e3 * (b - a) / orders for a, b in pairwise(cpu)],
    }
