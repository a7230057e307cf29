"""The engines that carry orders out, and what each of them can do.

A new engine takes a backend in a room of its own, and a line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

METRICS = "hposvc.backends.ray.prometheus:RayMetrics"


@dataclass(frozen=True)
class EngineType:
    """An engine's backend, and what the checks of a spec need to know of it."""

    backend: str  # "module:Class"
    watchers: tuple[str, ...] = ()  # further watchers of a sweep, as "module:Class"
    simulated: bool = False  # it calls a curve in place of a trainable, on a clock of its own
    shared: bool = False  # sweeps share a cluster, as `queue` says
    on_nodes: bool = False  # ranks may run on other machines, which must reach the storage
    backend_of_several: str = ""  # of trials of several workers; empty: the same
    elastic: bool = True  # a trial's workers can be changed while it runs
    batched: bool = True  # a process can train several trials at once
    finds_slow_nodes: bool = True
    foreign: bool = False  # agents take its trials, which may bring code of their own

    def backend_for(self, ranks: int) -> str:
        """Return the backend of trials of so many ranks."""
        return self.backend_of_several if ranks > 1 and self.backend_of_several else self.backend


ENGINES: Mapping[str, EngineType] = {
    "ray": EngineType("hposvc.backends.ray.pool:RayPool", (METRICS,), shared=True, on_nodes=True),
    "tune": EngineType(
        "hposvc.backends.tune.backend:RayTune", (METRICS,), shared=True, on_nodes=True
    ),
    "local": EngineType(
        "hposvc.backends.local:LocalBackend",
        backend_of_several="hposvc.backends.process.pool:ProcessPool",
        elastic=False,
        batched=False,
        finds_slow_nodes=False,
    ),
    "agents": EngineType(
        "hposvc.backends.agents:Agents",
        on_nodes=True,
        elastic=False,
        batched=False,
        finds_slow_nodes=False,
        foreign=True,
    ),
    "simulate": EngineType("hposvc.backends.simulate:Simulation", simulated=True),
}
