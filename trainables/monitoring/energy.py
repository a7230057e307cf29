"""The energy that orders use on a rank: of its GPUs by NVML, of its processors by RAPL.

A package's energy is that of all processes of the machine. This rank's get the part of it that they
have of the busy processor time, so that the parts of all ranks are at most the whole. This is the
only estimate: what has no counter is not measured.

Sources: NVML API reference, nvmlDeviceGetTotalEnergyConsumption (mJ since the driver was loaded);
Linux kernel documentation, power capping framework (energy_uj begins anew at max_energy_range_uj).
"""

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from trainables.monitoring import device

POWERCAP = "HPOSVC_POWERCAP"  # environment variable: Linux's powercap tree, if it is elsewhere
TREE = "/sys/class/powercap"
JOULES_PER_KWH = 3.6e6
MOST = 0.05  # of the time goes into looks: to find a process's children reads all of /proc
WRAP_S = 10.0  # a counter may begin anew after some minutes, and must be looked at before


class Unmeasured(Exception):
    """The energy is not measured here; the message says why."""


class Counter(NamedTuple):
    """A counter of energy."""

    read: Callable[[], float]  # joules; raises OSError
    range: float = 0.0  # joules at which it begins anew; 0: only where its driver is loaded again

    def between(self, before: float, now: float) -> float:
        """Return the joules between two readings."""
        return now - before if now >= before else now + max(0.0, self.range - before)


class _Reading(NamedTuple):
    gpus: Sequence[float]  # joules, by counter
    packages: Sequence[float]  # likewise
    own_s: float  # processor time of this process and its children
    busy_s: float  # of all processes of the machine


@dataclass(eq=False)
class Meter:
    """Measures the energy of this process's orders; those that are at work at once share alike.

    Args:
        gpu_share: of the GPUs' energy; below 1, other processes use them too.
        unmeasured: what is not measured, and why; empty: all is.
    """

    gpus: Sequence[Counter]
    packages: Sequence[Counter]
    gpu_share: float = 1.0
    unmeasured: str = ""
    _joules: dict[int, float] = field(default_factory=dict)  # by order
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _looked_at: float = 0.0  # monotonic
    _took_s: float = 0.0

    def __post_init__(self) -> None:
        self.measures = bool(self.gpus or self.packages)
        self._last = self._read()

    def begin(self, order: int) -> None:
        """Measure an order from now on, unless it has begun."""
        with self._lock:
            self.look(0.0)
            self._joules.setdefault(order, 0.0)

    @contextmanager
    def during(self, order: int) -> Iterator[None]:
        """Measure an order within the context, or since it began."""
        self.begin(order)
        try:
            yield
        finally:
            with self._lock:
                del self._joules[order]

    def kwh(self, order: int, exact: bool = False) -> float | None:
        """Return what an order has used, up to a moment ago or exactly; None: unmeasured."""
        with self._lock:
            exact = exact or not self._joules.get(order)  # a first report has used something, too
            self.look(0.0 if exact else self._took_s / MOST)
            measured = self.measures and order in self._joules
            return self._joules[order] / JOULES_PER_KWH if measured else None

    def look(self, period_s: float = WRAP_S) -> None:
        """Share out what was used since the last look, if that was before this period."""
        with self._lock, suppress(OSError, psutil.Error):  # what can't be read, the next look has
            began = time.monotonic()
            if not self.measures or began < self._looked_at + period_s:
                return
            last, now = self._last, self._read()
            if self.packages and now.busy_s <= last.busy_s:
                return  # too soon: processor time is counted in ticks
            self._last, self._looked_at = now, time.monotonic()
            self._took_s = self._looked_at - began
            joules = self.gpu_share * sum(map(Counter.between, self.gpus, last.gpus, now.gpus))
            if self.packages:
                share = max(0.0, now.own_s - last.own_s) / (now.busy_s - last.busy_s)
                used = map(Counter.between, self.packages, last.packages, now.packages)
                joules += min(1.0, share) * sum(used)
            for order in self._joules:
                self._joules[order] += joules / len(self._joules)

    def _read(self) -> _Reading:
        gpus, packages = ([one.read() for one in each] for each in (self.gpus, self.packages))
        times_s = (_own_s(), _busy_s()) if packages else (0.0, 0.0)
        return _Reading(gpus, packages, *times_s)


@cache
def meter(gpu: bool, gpu_share: float) -> Meter:
    """Return the meter of this process; a GPU without a counter leaves all unmeasured."""
    try:
        gpus = gpu_counters() if gpu else []
    except Unmeasured as error:
        return Meter([], [], unmeasured=f"GPUs ({error})")
    try:
        return Meter(gpus, packages_in(Path(os.environ.get(POWERCAP) or TREE)), gpu_share)
    except Unmeasured as error:
        return Meter(gpus, [], gpu_share, f"processors ({error})")


def packages_in(tree: Path) -> list[Counter]:
    """Return the counters of the processor packages, not of their parts or the whole platform.

    Raises:
        Unmeasured: there are none, or this user may not read them.
    """
    counters = []
    try:
        for name in sorted(tree.glob("intel-rapl:*/name")):  # AMD's too
            if name.read_text().startswith("package"):
                most = _read_micro(name.with_name("max_energy_range_uj"))
                counters.append(Counter(partial(_read_micro, name.with_name("energy_uj")), most))
                counters[-1].read()
    except OSError as error:
        raise Unmeasured(f"{error.filename} can't be read: {error.strerror}") from error
    if not counters:
        raise Unmeasured(f"no RAPL in {tree}")
    return counters


def gpu_counters() -> list[Counter]:
    """Return the counters of the GPUs that this process sees.

    Raises:
        Unmeasured: NVML is not here, a model has no counter, or it is unknown which GPUs they are.
    """
    try:
        nvml = importlib.import_module("pynvml")
        gpus = device.visible_gpus(nvml, os.environ)
        counters = [Counter(partial(_read_gpu, nvml, gpu)) for gpu in gpus]
        for counter in counters:
            counter.read()
    except ImportError:
        raise Unmeasured("nvidia-ml-py is not installed") from None
    except (OSError, nvml.NVMLError) as error:
        raise Unmeasured(f"NVML: {error}") from error
    if not counters:
        raise Unmeasured("of several models: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return counters


def _read_micro(file: Path) -> float:
    return int(file.read_text()) / 1e6


def _read_gpu(nvml: Any, gpu: object) -> float:
    try:
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1e3
    except nvml.NVMLError as error:
        raise OSError(f"{error}") from error


def _own_s() -> float:
    """Return the processor time of this process and its children, those that ended included."""
    process, seconds = psutil.Process(), 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # its parent has its time by now
            seconds += sum(one.cpu_times()[:4])  # user and system, also of ended children
    return seconds


def _busy_s() -> float:
    """Return the time that the machine's processors have worked; user and nice include guests."""
    times = psutil.cpu_times()
    parts = ("user", "nice", "system", "irq", "softirq")
    return sum(getattr(times, part, 0.0) for part in parts)
