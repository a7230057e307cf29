"""Ray Tune's function and class trainables, unchanged, run by our worker.

Imported only for code that uses ray.tune itself. `tune.report` and related functions ask a module
of Ray for the session of this process; there is no public way to set it (Ray 2.60), so the module's
variable is replaced while the function runs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from ray import tune
from ray.train._internal import session as of_process

from trainables.functions import Read
from trainables.session import Session
from trainables.worker import Params, Worker

TRAINING_ITERATION = "training_iteration"
# Keys that Trainable.train adds to each result of the user's step.
FILLED_IN = {"done", TRAINING_ITERATION, "timesteps_total", "episodes_total", "should_checkpoint"}


@dataclass
class _TuneSession:
    """A session with the attributes that ray.tune's functions read, under Tune's names."""

    session: Session
    worker: Worker
    world_rank: int | None = None  # Tune's own sessions have none either

    def report(self, metrics: Mapping[str, Any], checkpoint: Any = None) -> None:
        values = dict(_flat(metrics, ()))
        if checkpoint is None:
            self.session.report(values, None, None)
            return
        with checkpoint.as_directory() as folder:
            self.session.report(values, None, Path(folder))

    @property
    def loaded_checkpoint(self) -> Any:
        folder = self.session.get_checkpoint()
        return None if folder is None else tune.Checkpoint.from_directory(str(folder))

    @property
    def trial_name(self) -> str:
        return self.worker.trial

    @property
    def trial_id(self) -> str:
        return self.worker.trial

    @property
    def experiment_name(self) -> str:
        return self.worker.checkpoints.parent.name  # the sweep's folder is named after its id

    @cached_property
    def trial_dir(self) -> str:
        return str(self.worker.scratch())

    @property
    def trial_resources(self) -> Any:
        return tune.PlacementGroupFactory([{"CPU": 1}])


@contextmanager
def in_session(session: Session, worker: Worker) -> Iterator[Read]:
    """Let `tune.report` and `tune.get_checkpoint` use the worker's session within the block."""
    tune_session: Any = _TuneSession(session, worker)
    before, of_process._session = of_process._session, tune_session
    try:
        yield lambda returned: dict(_flat(returned, ()))
    finally:
        of_process._session = before


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
        trainable.restore(of_process._TrainingResult(checkpoint, counted))
    filled_in = {*trainable.get_auto_filled_metrics(), *FILLED_IN} - {*worker.metrics}
    # If the spec sets no length of a trial, the trial is over when its result says `done`.
    for step in count(worker.first) if worker.until is None else worker.steps():
        result = trainable.train()
        folder = worker.scratch() if saves and worker.takes(step) else None
        if folder is not None:
            trainable.save(str(folder))
        worker.report(step, dict(_flat(result, filled_in)), folder)
        if result.get("done"):
            return


def _flat(result: Mapping[str, Any], but: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a result, nested ones by path."""
    for name, value in result.items():
        if name in but:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in _flat(value, ()))
        else:
            yield name, value
