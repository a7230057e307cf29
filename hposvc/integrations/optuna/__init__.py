"""hposvc for people with an Optuna study, or an objective, public as `hposvc.optuna`."""

from hposvc.integrations.optuna.export import to_study
from hposvc.integrations.optuna.importing import from_study
from hposvc.integrations.optuna.objective import find_parameters, run
from hposvc.integrations.optuna.sampler import Sampler
from hposvc.integrations.optuna.storage import Storage

__all__ = ["Sampler", "Storage", "find_parameters", "from_study", "run", "to_study"]
