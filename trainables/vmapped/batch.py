"""Several trials of one shape in one process, trained together epoch by epoch.

Each trial has its own step, order of samples, schedule and random numbers, so its result is that of
a trial running alone. A stopped trial leaves, and another one may take its place.

Axes: K trials, N training samples, B samples of a batch, P weights of a trial.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from trainables.errors import text_of
from trainables.randomness import preserved
from trainables.stop_signals import Preempted, StopTrial
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
        self._trials: list[VmappedTrial] = []
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
        for trial in self._trials:
            with suppress(Exception):
                trial.closing.close()
        self._trials, self._vmap_trainer = [], None
        self._settings.close()

    @property
    def workers(self) -> list[Worker]:
        """The workers of the trials in the batch."""
        return [trial.worker for trial in self._trials]

    def add(self, task: Task, worker: Worker) -> bool:
        """Add a trial from the next epoch on; False: it only had a step to finish, and is done.

        Raises:
            Unbatchable: the trial cannot train at once with those in the batch.
            ValueError: the batch is full, or the trial is invalid by itself.
        """
        if len(self._trials) == self.most:
            raise ValueError(f"a batch of {self.most} trials is full")
        prototype = self._trials[0] if self._trials else None
        refusals.check_options(worker, None if prototype is None else prototype.worker.training)
        scoring.check(task, "trials_per_process above 1")
        if prototype is None:
            self._settings.enter_context(settings.applied(worker.training, worker.device))
        else:
            refusals.check_tasks(task, prototype.trainer.task)
        try:
            trial = VmappedTrial.begin(task, worker)
            try:
                return self._admit(trial, prototype)
            except BaseException:
                trial.closing.close()
                raise
        except StopTrial:
            return False
        finally:
            if not self._trials:
                self._settings.close()

    def epoch(self) -> list[FinishedTrial]:
        """Train and report a step of every trial; return the trials that leave after it.

        Raises:
            Unbatchable: the task's code cannot be computed for several trials at once.
        """
        if self._vmap_trainer is None:
            return []
        tallies = self._vmap_trainer.train()
        at_milestone = [trial.step in trial.worker.milestones for trial in self._trials]
        if sum(at_milestone) > 1:  # wait for the decisions in parallel
            with ThreadPoolExecutor(sum(at_milestone)) as pool:
                left = dict(pool.map(self._report, range(len(tallies)), tallies))
        else:
            left = dict(map(self._report, range(len(tallies)), tallies))
        gone = {row: finished for row, finished in left.items() if finished is not None}
        return self._remove(gone) if gone else []

    def leave(self, why: str) -> list[FinishedTrial]:
        """End all trials, after saving the last step that each one reported."""
        left = {}
        for row, trial in enumerate(self._trials):
            error = Preempted(why)
            try:
                if trial.step - 1 == trial.worker.reported:  # in this order
                    self._save_reported_step(row, trial)
            except BaseException as failure:  # noqa: BLE001 - it resumes from its last checkpoint
                error = Preempted(
                    f"{why}; step {trial.worker.reported} is not kept: {text_of(failure)}"
                )
            left[row] = FinishedTrial(trial.worker, error)
        return self._remove(left) if left else []

    def _save_reported_step(self, row: int, trial: VmappedTrial) -> None:
        assert self._vmap_trainer is not None
        try:
            self._vmap_trainer.write_back(row)
            trial.trainer.saver.keep_step(trial.step - 1, trial.trainer.state)
        finally:
            self._vmap_trainer.discard_copy(row)

    def _report(self, row: int, tallied: Tallied) -> tuple[int, FinishedTrial | None]:
        """Report a trial's step; the second value is None if the trial goes on."""
        assert self._vmap_trainer is not None
        trial, error = self._trials[row], None
        try:
            self._vmap_trainer.save(row)
            trial.report(*tallied)
            if not trial.is_over:
                return row, None
        except StopTrial:
            pass
        except BaseException as failure:  # noqa: BLE001 - the other trials go on
            error = failure
        finally:
            self._vmap_trainer.discard_copy(row)
        return row, FinishedTrial(trial.worker, error)

    def _admit(self, trial: VmappedTrial, prototype: VmappedTrial | None) -> bool:
        """Add a prepared trial; return whether it has a step left."""
        if trial.is_over:
            trial.closing.close()
            return False
        trainer = trial.trainer
        if self._vmap_trainer is None or prototype is None:
            refusals.check_data(trainer.passes.data, trainer.passes.data)
            refusals.check_model(trainer.passes.unwrapped_model, trainer.passes.unwrapped_model, [])
            vmap_trainer = VmapTrainer(trial)
        else:
            other, vmap_trainer = prototype.trainer, self._vmap_trainer
            refusals.check_data(trainer.passes.data, other.passes.data)
            names = differing_fields([trainer.task, other.task])
            refusals.check_model(
                trainer.passes.unwrapped_model, other.passes.unwrapped_model, names
            )
            vmap_trainer.check(trial)
            trial.use_tensors_of(other.passes.data)
        vmap_trainer.add(trial)
        self._trials, self._vmap_trainer = vmap_trainer.trials, vmap_trainer
        return True

    def _remove(self, left: dict[int, FinishedTrial]) -> list[FinishedTrial]:
        """Close these trials, and keep the rows of the others."""
        assert self._vmap_trainer is not None
        finished = []
        for row, (worker, error) in left.items():
            try:
                self._trials[row].closing.close()
            except BaseException as failure:  # noqa: BLE001 - an error in writing its checkpoints
                error = error or failure
            finished.append(FinishedTrial(worker, error))
        self._vmap_trainer.keep([row for row in range(len(self._trials)) if row not in left])
        self._trials = self._vmap_trainer.trials
        if not self._trials:
            self._vmap_trainer = None
            self._settings.close()
        return finished
