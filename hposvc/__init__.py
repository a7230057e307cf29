"""Hyperparameter sweeps on Ray.

Every name is imported on first use, so `import hposvc` itself loads next to nothing. That holds for
`hposvc.sklearn` and the other libraries' names too.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hposvc import catboost, hf, keras, lightgbm, lightning, optuna, sklearn, xgboost
    from hposvc.errors import Denied, Interrupted, NotFound, OutOfReach, SpecError
    from hposvc.integrations.tune_search import TuneSearch
    from hposvc.python.handle import Handle, load
    from hposvc.python.server import Server, connect
    from hposvc.python.sweep import Sweep
    from hposvc.reporting.result import NoSingleBest, NoValue, Result
    from hposvc.spec import SweepSpec
    from hposvc.spec.metrics import Metric
    from hposvc.state.answers import Best
    from trainables import get_checkpoint, report

_HOMES = {
    "Best": "hposvc.state.answers",
    "Denied": "hposvc.errors",
    "Handle": "hposvc.python.handle",
    "Interrupted": "hposvc.errors",
    "Metric": "hposvc.spec.metrics",
    "NoSingleBest": "hposvc.reporting.result",
    "NoValue": "hposvc.reporting.result",
    "NotFound": "hposvc.errors",
    "OutOfReach": "hposvc.errors",
    "Result": "hposvc.reporting.result",
    "Server": "hposvc.python.server",
    "SpecError": "hposvc.errors",
    "Sweep": "hposvc.python.sweep",
    "SweepSpec": "hposvc.spec",
    "TuneSearch": "hposvc.integrations.tune_search",
    "connect": "hposvc.python.server",
    "get_checkpoint": "trainables",
    "load": "hposvc.python.handle",
    "report": "trainables",
}
# Modules for users of other libraries; each names what hposvc/integrations/ has for it.
_INTEGRATIONS = (
    "catboost",
    "hf",
    "keras",
    "lightgbm",
    "lightning",
    "optuna",
    "sklearn",
    "xgboost",
)
__all__ = [
    "Best",
    "Denied",
    "Handle",
    "Interrupted",
    "Metric",
    "NoSingleBest",
    "NoValue",
    "NotFound",
    "OutOfReach",
    "Result",
    "Server",
    "SpecError",
    "Sweep",
    "SweepSpec",
    "TuneSearch",
    "__version__",
    "catboost",
    "connect",
    "get_checkpoint",
    "hf",
    "keras",
    "lightgbm",
    "lightning",
    "load",
    "optuna",
    "report",
    "sklearn",
    "xgboost",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("hposvc")
    if name in _INTEGRATIONS:
        return import_module(f"hposvc.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'hposvc' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
