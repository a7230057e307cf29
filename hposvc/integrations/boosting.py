"""Common parts of XGBoost and LightGBM: rounds of boosting, reported with the model so far."""

import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from trainables import get_checkpoint, report


def hand_over(
    rounds: int,
    every: int,
    metrics: Callable[[], Mapping[str, float]],
    save: Callable[[Path], object],
    file: str,
) -> None:
    """Report a step, which is so many rounds of boosting, with the model as its checkpoint.

    Args:
        rounds: of boosting so far, over all orders of the trial.
        every: rounds that are a step; within one nothing is reported.
        metrics: returns the values to report, by name.
        save: writes the model to a file.
        file: the name of that file.

    Raises:
        StopTrial: the trial ends here, or waits at a rung.
    """
    if rounds % every:
        return
    with TemporaryDirectory(prefix="hposvc-") as folder:
        save(Path(folder, file))
        report(metrics(), step=rounds // every, checkpoint=folder)


def saved(file: str) -> str | None:
    """Return the file of the model to go on from; None: the trial starts from scratch."""
    folder = get_checkpoint()
    return None if folder is None else str(folder / file)


def check_every(every: int) -> int:
    """Return the number of rounds that are a step.

    Raises:
        ValueError: it is less than 1, or no whole number.
    """
    try:
        rounds = operator.index(every)
    except TypeError:
        rounds = 0
    if rounds < 1:
        raise ValueError(f"every is {every!r}; give the rounds of a step, a whole number from 1 on")
    return rounds


def several_models_error(function: str) -> TypeError:
    """Return the error for a callback in cross-validation, whose models are no checkpoint."""
    return TypeError(
        f"{function} trains several models, but a step has one as its checkpoint; give Report() to "
        "train, or pass the result of the cross-validation to hposvc.report"
    )
