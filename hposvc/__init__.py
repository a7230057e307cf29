"""Hyperparameter sweeps on Ray.

Every name is imported on first use, so `import hposvc` itself loads next to nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hposvc.errors import Interrupted, NotFound, OutOfReach, SpecError
    from hposvc.handle import Handle, load
    from hposvc.result import Best, NoSingleBest, NoValue, Result
    from hposvc.spec import Metric, SweepSpec
    from hposvc.sweep import Sweep
    from hposvc.tune_search import TuneSearch
    from trainables.session import get_checkpoint, report

_HOMES = {
    "Best": "hposvc.result",
    "Handle": "hposvc.handle",
    "Interrupted": "hposvc.errors",
    "Metric": "hposvc.spec",
    "NoSingleBest": "hposvc.result",
    "NoValue": "hposvc.result",
    "NotFound": "hposvc.errors",
    "OutOfReach": "hposvc.errors",
    "Result": "hposvc.result",
    "SpecError": "hposvc.errors",
    "Sweep": "hposvc.sweep",
    "SweepSpec": "hposvc.spec",
    "TuneSearch": "hposvc.tune_search",
    "get_checkpoint": "trainables.session",
    "load": "hposvc.handle",
    "report": "trainables.session",
}
__all__ = [
    "Best",
    "Handle",
    "Interrupted",
    "Metric",
    "NoSingleBest",
    "NoValue",
    "NotFound",
    "OutOfReach",
    "Result",
    "SpecError",
    "Sweep",
    "SweepSpec",
    "TuneSearch",
    "__version__",
    "get_checkpoint",
    "load",
    "report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("hposvc")
    if name not in _HOMES:
        raise AttributeError(f"module 'hposvc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
