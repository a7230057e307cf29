"""Hyperparameter sweeps on Ray.

Every name is imported on first use, so `import hposvc` itself loads next to nothing. That holds for
`hposvc.sklearn` and the other libraries' names too.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

from trainables.lazy_imports import lazy_imports

if TYPE_CHECKING:
    # Modules for users of other libraries; each names what hposvc/integrations/ has for it.
    from hposvc import catboost as catboost
    from hposvc import hf as hf
    from hposvc import keras as keras
    from hposvc import lightgbm as lightgbm
    from hposvc import lightning as lightning
    from hposvc import optuna as optuna
    from hposvc import ray as ray
    from hposvc import sklearn as sklearn
    from hposvc import xgboost as xgboost
    from hposvc.errors import Denied as Denied
    from hposvc.errors import Interrupted as Interrupted
    from hposvc.errors import NotFound as NotFound
    from hposvc.errors import OutOfReach as OutOfReach
    from hposvc.errors import SpecError as SpecError
    from hposvc.integrations.tune_search import TuneSearch as TuneSearch
    from hposvc.python.handle import Handle as Handle
    from hposvc.python.handle import load as load
    from hposvc.python.server import Server as Server
    from hposvc.python.server import connect as connect
    from hposvc.python.sweep import Sweep as Sweep
    from hposvc.reporting.result import NoSingleBest as NoSingleBest
    from hposvc.reporting.result import NoValue as NoValue
    from hposvc.reporting.result import Result as Result
    from hposvc.spec import SweepSpec as SweepSpec
    from hposvc.spec.metrics import Metric as Metric
    from hposvc.state.answers import Best as Best
    from trainables import get_checkpoint as get_checkpoint
    from trainables import report as report

    __version__: str
else:
    _load, _names = lazy_imports(__name__)

    def __getattr__(name):
        return version("hposvc") if name == "__version__" else _load(name)

    def __dir__():
        return sorted([*_names(), "__version__"])

    __all__ = __dir__()
