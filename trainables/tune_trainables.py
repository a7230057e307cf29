"""Ray Tune's class trainables, unchanged, run by our worker.

Imported only for code that brings one.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from ray import tune
from ray.train._internal.session import _TrainingResult

from trainables.ray_session import flat
from trainables.worker import Params, Worker

TRAINING_ITERATION = "training_iteration"
# Keys that Trainable.train adds to each result of the user's step.
FILLED_IN = {"done", TRAINING_ITERATION, "timesteps_total", "episodes_total", "should_checkpoint"}


def bind_class(cls: type, own: Params) -> Callable[[Worker], None]:
    """Return the function that a rank calls with its worker; a Trainable's step is a worker's."""

    def train(worker: Worker) -> None:
        trainable = cls(config=dict(own))
        try:
            _run(trainable, worker)
        finally:
            trainable.stop()
            with suppress(OSError):  # the user's files are in it
                Path(trainable.logdir).rmdir()

    return train


def _run(trainable: Any, worker: Worker) -> None:
    saves = type(trainable).save_checkpoint is not tune.Trainable.save_checkpoint
    start = worker.restore()
    if start is not None:
        checkpoint = tune.Checkpoint.from_directory(str(start))
        counted = {TRAINING_ITERATION: worker.first - 1}
        trainable.restore(_TrainingResult(checkpoint, counted))
    filled_in = {*trainable.get_auto_filled_metrics(), *FILLED_IN} - {*worker.metrics}
    # If the spec sets no length of a trial, the trial is over when its result says `done`.
    for step in count(worker.first) if worker.until is None else worker.steps():
        result = trainable.train()
        folder = worker.scratch() if saves and worker.takes(step) else None
        if folder is not None:
            trainable.save(str(folder))
        worker.report(step, dict(flat(result, filled_in)), folder)
        if result.get("done"):
            return
