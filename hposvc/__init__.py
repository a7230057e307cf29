"""Hyperparameter sweeps on Ray. Names load on first use; importing this loads next to nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hposvc.backends.backend import OutOfReach
    from hposvc.home import NotFound
    from hposvc.reading.problems import SpecError
    from hposvc.result import Best, NoSingleBest, NoValue, Result
    from hposvc.runner import Interrupted
    from hposvc.spec import Metric, SweepSpec
    from hposvc.sweep import Sweep
    from hposvc.tune_search import TuneSearch
    from trainables.session import get_checkpoint, report

_HOMES = {
    "Best": "hposvc.result",
    "Interrupted": "hposvc.runner",
    "Metric": "hposvc.spec",
    "NoSingleBest": "hposvc.result",
    "NoValue": "hposvc.result",
    "NotFound": "hposvc.home",
    "OutOfReach": "hposvc.backends.backend",
    "Result": "hposvc.result",
    "SpecError": "hposvc.reading.problems",
    "Sweep": "hposvc.sweep",
    "SweepSpec": "hposvc.spec",
    "TuneSearch": "hposvc.tune_search",
    "get_checkpoint": "trainables.session",
    "report": "trainables.session",
}
__all__ = [
    "Best",
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
    "get_checkpoint",
    "report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hposvc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
