"""Hyperparameter sweeps on Ray. Names load on first use; importing this loads next to nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hposvc.backends.backend import OutOfReach
    from hposvc.home import NotFound
    from hposvc.reading.problems import SpecError
    from hposvc.runner import Interrupted
    from hposvc.spec import Metric, SweepSpec
    from hposvc.sweep import Best, NoValue, Result, Sweep
    from hposvc.tune_search import TuneSearch
    from trainables.session import get_checkpoint, report

_HOMES = {
    "Best": "hposvc.sweep",
    "Interrupted": "hposvc.runner",
    "Metric": "hposvc.spec",
    "NoValue": "hposvc.sweep",
    "NotFound": "hposvc.home",
    "OutOfReach": "hposvc.backends.backend",
    "Result": "hposvc.sweep",
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
