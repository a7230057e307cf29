"""CatBoost in a sweep: `fit` that reports and stops.

hposvc.catboost.fit(CatBoostClassifier(iterations=27, **config), x, y, eval_set=held_out)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from catboost import CatBoost

from hposvc.integrations.boosting import check_every
from trainables import StopTrial, report

Model = TypeVar("Model", bound=CatBoost)


class _Round(Protocol):
    """News of CatBoost to its callbacks after a round: its number, from 1 on, and all values."""

    iteration: int
    metrics: Mapping[str, Mapping[str, list[float]]]


class _Report:
    def __init__(self, every: int) -> None:
        self._every = check_every(every)
        self.stopped: StopTrial | None = None

    def after_iteration(self, info: _Round) -> bool:
        """Report the round, and return whether to go on; CatBoost would swallow an exception."""
        if info.iteration % self._every:
            return True
        metrics = {
            f"{data}/{name}": values[-1]
            for data, log in info.metrics.items()
            for name, values in log.items()
        }
        try:
            report(metrics, step=info.iteration // self._every)
        except StopTrial as stop:
            self.stopped = stop
        return self.stopped is None


def fit(
    model: Model, *data: Any, every: int = 1, callbacks: Sequence[Any] = (), **options: Any
) -> Model:
    """Call `model.fit`, and report each evaluation to the sweep as `DATA/METRIC`.

    CatBoost does not hand out the model before its last round, so there are no checkpoints: a trial
    that is interrupted, or that goes on from a rung, begins anew. Outside a sweep the values are
    printed.

    Args:
        data: what `fit` takes by position: x and y, or a Pool.
        every: rounds of boosting that are a step of the sweep.
        callbacks: further ones, as `fit` takes them.
        options: of `fit`, as eval_set.

    Raises:
        StopTrial: the trial ends here, or waits at a rung.
        ValueError: `every` is less than 1.
    """
    reports = _Report(every)
    model.fit(*data, callbacks=[reports, *callbacks], **options)
    if reports.stopped is not None:
        raise reports.stopped
    return model
