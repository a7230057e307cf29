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

from collections.abc import Mapping
from typing import Any

from xgboost import Booster
from xgboost.callback import TrainingCallback

from hposvc.integrations.boosting import check_every, hand_over, saved, several_models_error

FILE = "model.ubj"


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
        """Return the model, as it was; XGBoost calls this.

        Raises:
            TypeError: this is a cross-validation, which has several models.
        """
        if not isinstance(model, Booster):
            raise several_models_error("xgboost.cv")
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
