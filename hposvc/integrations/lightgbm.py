"""LightGBM in a sweep: a callback that reports, stops, saves the model; the model to go on from.

lightgbm.train(
    params,
    data,
    num_boost_round=500,
    valid_sets=[held_out],
    valid_names=["val"],
    init_model=hposvc.lightgbm.checkpoint(),
    callbacks=[hposvc.lightgbm.Report()],
)
"""

import inspect
from collections.abc import Iterable

from lightgbm import Booster, LGBMModel
from lightgbm.basic import _ConfigAliases
from lightgbm.callback import CallbackEnv, EarlyStopException

from hposvc.integrations.boosting import check_every, hand_over, saved, several_models_error
from searchers import closest

FILE = "model.txt"
# Names at least this alike are taken for misspellings. `n_leaves` is 0.89 like `num_leaves`; but
# `boost_rounds`, which may be a key of the user's own, is 0.81 like `num_boost_round`.
MISSPELLED = 0.82


class Report:
    """Reports each evaluation to the sweep as `DATA/METRIC`, and ends the trial when it is to stop.

    The booster goes along as checkpoint. Outside a sweep the values are printed.

    Args:
        every: rounds of boosting that are a step of the sweep.

    Raises:
        ValueError: `every` is less than 1.
    """

    before_iteration = False

    def __init__(self, every: int = 1) -> None:
        self._every = check_every(every)
        # LightGBM calls log_evaluation (10) before, and early_stopping (30) after it. It looks for
        # the order in the instance alone, not in the class (4.7).
        self.order = 25
        self._resumed = False

    def __call__(self, env: CallbackEnv) -> None:
        """Report the round; LightGBM calls this.

        Raises:
            TypeError: this is a cross-validation, which has several models.
            ValueError: a parameter is misspelled.
            EarlyStopException: a trial that was resumed has done its `num_boost_round` rounds.
        """
        if not isinstance(env.model, Booster):
            raise several_models_error("lightgbm.cv")
        if env.iteration == env.begin_iteration:
            self._resumed = checkpoint() is not None
            check_names(env.params)
        rounds = env.model.current_iteration()
        # LightGBM counts them from the model that it goes on from, not from the trial's beginning.
        wanted = env.end_iteration - env.begin_iteration
        if not self._resumed or rounds <= wanted:
            self._report(env, env.model, rounds)
        if self._resumed and rounds >= wanted:
            raise EarlyStopException(min(rounds, wanted) - 1, env.evaluation_result_list or [])

    def _report(self, env: CallbackEnv, model: Booster, rounds: int) -> None:
        """Report a round, with the model so far."""

        def metrics() -> dict[str, float]:
            results = env.evaluation_result_list or ()
            return {f"{data}/{name}": value for data, name, value, *_ in results}

        hand_over(rounds, self._every, metrics, model.save_model, FILE)


def check_names(names: Iterable[str]) -> None:
    """Refuse a misspelled parameter, without which LightGBM would train.

    A name unlike all known ones passes, as LightGBM lets keys of the user's own pass.

    Raises:
        ValueError: a name is not known, but nearly one that is.
    """
    aliases = _ConfigAliases._get_all_param_aliases().values()  # no public function has them (4.7)
    known = set().union(*aliases, inspect.signature(LGBMModel).parameters)
    for name in names:
        if name not in known and (meant := closest(name, known, MISSPELLED)):
            raise ValueError(f"{name}: no parameter of LightGBM; did you mean {meant!r}?")


def checkpoint() -> str | None:
    """Return the file of the booster to go on from, for `init_model`; None: start from scratch."""
    return saved(FILE)
