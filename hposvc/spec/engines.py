"""The section `engine`, and the engines that carry orders out with what each of them can do.

A new engine takes a backend in a room of its own, and a line here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from hposvc.errors import fail, shown
from hposvc.spec.registry import is_reference
from hposvc.spec.types import CLOSED, Seconds

ON_RAY = ("hposvc.backends.ray.prometheus:RayMetrics", "hposvc.views.ray_job:RayJob")


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
    in_process: bool = False  # it trains in the driver's process, unless a trial is a program
    code_versions: bool = False  # trials may have the code of different commits
    extra: str = ""  # of hposvc, that it needs; empty: none

    def backend_for(self, ranks: int) -> str:
        """Return the backend of trials of so many ranks."""
        return self.backend_of_several if ranks > 1 and self.backend_of_several else self.backend


ENGINES: Mapping[str, EngineType] = {
    "ray": EngineType(
        "hposvc.backends.ray.pool:RayPool",
        ON_RAY,
        shared=True,
        on_nodes=True,
        code_versions=True,
    ),
    "tune": EngineType(
        "hposvc.backends.tune.backend:RayTune", ON_RAY, shared=True, on_nodes=True, extra="tune"
    ),
    "local": EngineType(
        "hposvc.backends.local:LocalBackend",
        backend_of_several="hposvc.backends.process.pool:ProcessPool",
        elastic=False,
        batched=False,
        finds_slow_nodes=False,
        in_process=True,
        code_versions=True,
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


def names_of(able: Callable[[EngineType], bool]) -> str:
    """Return the names of the engines that can do something, for a message."""
    return " or ".join(name for name, engine in ENGINES.items() if able(engine))


def _check_engine(name: str) -> str:
    if name not in ENGINES:
        *others, last = ENGINES
        raise ValueError(f"is {shown(name)}; choose {', '.join(others)} or {last}")
    return name


@dataclass(frozen=True)
class Engine:
    """The engine: the backend that carries out orders."""

    type: Annotated[str, AfterValidator(_check_engine)] = "ray"
    curve: str | None = None  # for simulate: a function, (params, step) -> (metrics, seconds)
    # For agents: seconds without a sign of life after which a trial is taken away. None: a minute.
    lease: Annotated[Seconds, Field(ge=1, le=1e6)] | None = None
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.lease is not None and not self.traits.foreign:
            foreign = names_of(lambda engine: engine.foreign)
            message = f"is for type {foreign}, and type is {self.type}"
            raise fail(message, "lease", fix="remove it", at_key=True)
        simulated = self.traits.simulated
        if simulated and self.curve is None:
            raise fail("is missing", "curve", fix="give module:function", at_key=True)
        if not simulated and self.curve is not None:
            able = names_of(lambda engine: engine.simulated)
            message = f"is for type {able}, and type is {self.type}"
            raise fail(message, "curve", fix="remove it", at_key=True)
        curve = self.curve
        if curve is None or is_reference(curve):
            return
        remedy = "write module:function or path/to/file.py:function"
        raise fail(f"is {shown(self.curve)}", "curve", fix=remedy)

    @property
    def lease_s(self) -> float:
        """Return the seconds of an agent's lease."""
        return 60.0 if self.lease is None else self.lease

    @property
    def traits(self) -> EngineType:
        """Return what the engine can do."""
        return ENGINES[self.type]
