"""XGBoost in a sweep: a callback that reports, stops, saves the model, and the model to go on from.

xgboost.train(
    params,
    data,
    num_boost_round=hposvc.xgboost.rounds_left(500),
    evals=[(held_out, "val")],
    xgb_model=hposvc.xgboost.checkpoint(),
    callbacks=[hposvc.xgboost.Report()],
)
"""

import inspect
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from xgboost import Booster, XGBModel, config_context, train
from xgboost.callback import TrainingCallback
from xgboost.core import _LIB

from hposvc.integrations.boosting import (
    check_every,
    check_names,
    hand_over,
    saved,
    several_models_error,
)

FILE = "model.ubj"
# A booster knows the parameters that it may use; together these know all of XGBoost's (3.2).
BOOSTERS: tuple[Mapping[str, object], ...] = (
    {"booster": "dart", "tree_method": "exact"},
    {"booster": "gblinear", "updater": "coord_descent"},
    {"objective": "rank:ndcg"},
    {"objective": "reg:pseudohubererror"},
    {"objective": "reg:quantileerror", "quantile_alpha": 0.5},
    {"objective": "reg:tweedie"},
    {"objective": "survival:aft"},
)


class Report(TrainingCallback):
    """Reports each evaluation to the sweep as `DATA/METRIC`, and ends the trial when it is to stop.

    The booster goes along as checkpoint. Outside a sweep the values are printed.

    Args:
        every: rounds of boosting that are a step of the sweep.

    Raises:
        ValueError: `every` is less than 1.
    """

    def __init__(self, every: int = 1) -> None:
        self._every = check_every(every)

    def before_training(self, model: Booster) -> Booster:
        """Check the names of the parameters; XGBoost calls this. Return the model, as it was.

        Raises:
            TypeError: this is a cross-validation, which has several models.
            ValueError: a parameter is misspelled.
        """
        if not isinstance(model, Booster):
            raise several_models_error("xgboost.cv")
        if unused := unused_parameters(model):
            check_names("XGBoost", unused, known_parameters())
        return model

    def after_iteration(
        self, model: Booster, epoch: int, evals_log: Mapping[str, Mapping[str, list[Any]]]
    ) -> bool:
        """Report the round; XGBoost calls this. Return False, as training need not end here."""

        def metrics() -> dict[str, float]:
            return {
                f"{data}/{name}": values[-1]
                for data, log in evals_log.items()
                for name, values in log.items()
            }

        hand_over(model.num_boosted_rounds(), self._every, metrics, model.save_model, FILE)
        return False


def unused_parameters(model: Booster) -> list[str]:
    """Return the names among a new booster's parameters that it does not use.

    Only a warning has them, which XGBoost gives once, when it first needs the parameters, and
    never with verbosity 0 (3.2). It is read here, and passed on.
    """
    _LIB.XGBRegisterLogCallback(_LIB.callback)  # else it warns in the thread of its import alone
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.save_config()
    for each in seen:
        warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    text = "".join(str(each.message) for each in seen)
    lists = re.findall(r"Parameters: \{(.*?)\} are not used", text)
    return re.findall('"(.*?)"', "".join(lists))


def known_parameters() -> set[str]:
    """Return the names of all parameters, and the arguments of `train` and scikit-learn's models.

    Those arguments are no misspellings, where they stand among the parameters.
    """
    known = {*inspect.signature(train).parameters, *inspect.signature(XGBModel).parameters}
    with config_context(verbosity=0):
        for params in BOOSTERS:
            config = Booster({"num_feature": 1, **params}).save_config()
            known.update(_names(json.loads(config)))
    return known


def _names(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the parameters in a booster's configuration."""
    for key, value in config.items():
        if key.endswith("_param"):
            yield from value
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from _names(part)


def checkpoint() -> str | None:
    """Return the file of the booster to go on from, for `xgb_model`; None: start from scratch."""
    return saved(FILE)


def rounds_left(rounds: int) -> int:
    """Return how many of a trial's rounds are left, for `num_boost_round` or `n_estimators`.

    XGBoost counts these from the model that it goes on from, not from the trial's beginning.

    Args:
        rounds: of the whole trial.
    """
    file = checkpoint()
    done = 0 if file is None else Booster(model_file=file).num_boosted_rounds()
    return max(0, rounds - done)
