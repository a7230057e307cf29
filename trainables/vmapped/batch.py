"""Several trials of one shape in one process, trained together epoch by epoch.

Each trial has its own step, order of samples, schedule and random numbers, so its result is that of
a trial running alone. A stopped trial leaves, and another one may take its place.

Axes: K trials, N training samples, B samples of a batch, P weights of a trial.
"""

from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from trainables.randomness import preserved
from trainables.stop_signals import StopTrial
from trainables.task import Task
from trainables.trainer import scoring, settings
from trainables.vmapped import refusals
from trainables.vmapped.fields import differing_fields
from trainables.vmapped.trial_state import VmappedTrial
from trainables.vmapped.vmap_trainer import Tallied, VmapTrainer
from trainables.worker import Worker


class FinishedTrial(NamedTuple):
    """A trial that has left the batch."""

    worker: Worker
    error: BaseException | None  # None: its order is over, or was stopped


class Batch:
    """Up to `most` trials that train at once; use it as a context."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"a batch of {most} trials; give 1 or more")
        self.most = most
        self.trials: list[VmappedTrial] = []
        self._settings = ExitStack()  # of torch, common to all trials
        self._vmap_trainer: VmapTrainer | None = None  # None: there is no trial
        self._rng_state = ExitStack()

    def __enter__(self) -> Self:
        self._rng_state.enter_context(preserved())
        return self

    def __exit__(self, *_: object) -> None:
        with self._rng_state:
            self.clear()

    def clear(self) -> None:
        """Drop all trials as they are; ignore errors in closing them, as an earlier one matters."""
        for trial in self.trials:
            with suppress(Exception):
                trial.closing.close()
        self.trials, self._vmap_trainer = [], None
        self._settings.close()

    @property
    def workers(self) -> list[Worker]:
        """The workers of the trials in the batch."""
        return [trial.worker for trial in self.trials]

    def add(self, task: Task, worker: Worker) -> VmappedTrial | None:
        """Add a trial from the next step on; None: it only had a step to finish, and is done.

        Raises:
            Unbatchable: the trial cannot train at once with those in the batch.
            ValueError: the batch is full, or the trial is invalid by itself.
        """
        if len(self.trials) == self.most:
            raise ValueError(f"a batch of {self.most} trials is full")
        refusals.check_options(worker, self.trials[0].worker.training if self.trials else None)
        scoring.check(task, "trials_per_process above 1")
        if self.trials:
            refusals.check_tasks(task, self.trials[0].trainer.task)
        else:
            self._settings.enter_context(settings.applied(worker.training, worker.device))
        try:
            trial = VmappedTrial.begin(task, worker)  # others may be added meanwhile
            try:
                return self._admit(trial)
            except BaseException:
                trial.closing.close()
                raise
        except StopTrial:
            return None
        finally:
            if not self.trials:
                self._settings.close()

    def train(self) -> list[Tallied]:
        """Train a step of all trials, of which there are some; each is then to be reported.

        Raises:
            Unbatchable: the task's code cannot be computed for several trials at once.
        """
        assert self._vmap_trainer is not None
        return self._vmap_trainer.train()

    def report(self, trial: VmappedTrial, tallied: Tallied) -> None:
        """Report a trial's step.

        Raises:
            StopTrial: its order ends here.
        """
        assert self._vmap_trainer is not None
        try:
            if trial.saves:
                self._vmap_trainer.write_back(trial)
            trial.report(*tallied)
        finally:
            VmapTrainer.discard_copy(trial)

    def keep_reported(self, trial: VmappedTrial) -> None:
        """Save the last step that a trial reported, since it goes on elsewhere."""
        assert self._vmap_trainer is not None
        try:
            self._vmap_trainer.write_back(trial)
            trial.trainer.saver.keep_step(trial.step - 1, trial.trainer.state)
        finally:
            VmapTrainer.discard_copy(trial)

    def remove(self, trial: VmappedTrial) -> None:
        """Close a trial, and keep the others."""
        assert self._vmap_trainer is not None
        try:
            trial.closing.close()
        finally:
            self._vmap_trainer.remove(trial)
            self.trials = self._vmap_trainer.trials
            if not self.trials:
                self._vmap_trainer = None
                self._settings.close()

    def epoch(self) -> list[FinishedTrial]:
        """Train and report a step of every trial; return the trials that leave after it."""
        trials, left = [*self.trials], []
        for trial, tallied in zip(trials, self.train() if trials else (), strict=True):
            error = None
            try:
                self.report(trial, tallied)
                if not trial.is_over:
                    continue
            except StopTrial:
                pass
            except BaseException as failure:  # noqa: BLE001 - the other trials go on
                error = failure
            self.remove(trial)
            left.append(FinishedTrial(trial.worker, error))
        return left

    def _admit(self, trial: VmappedTrial) -> VmappedTrial | None:
        """Add a prepared trial, and return it; None: it has no step left."""
        if trial.is_over:
            trial.closing.close()
            return None
        trainer = trial.trainer
        if self._vmap_trainer is None:
            refusals.check_data(trainer.passes.data, trainer.passes.data)
            refusals.check_model(trainer.passes.unwrapped_model, trainer.passes.unwrapped_model, [])
            vmap_trainer = VmapTrainer(trial)
        else:
            other, vmap_trainer = self.trials[0].trainer, self._vmap_trainer
            refusals.check_data(trainer.passes.data, other.passes.data)
            names = differing_fields([trainer.task, other.task])
            refusals.check_model(
                trainer.passes.unwrapped_model, other.passes.unwrapped_model, names
            )
            vmap_trainer.check(trial)
            trial.use_tensors_of(other.passes.data)
        vmap_trainer.add(trial)
        self.trials, self._vmap_trainer = vmap_trainer.trials, vmap_trainer
        return trial
