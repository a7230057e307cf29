"""The Ray Tune experiment that holds the slots: what Tune calls, and the thread it runs in."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import CheckpointConfig, PlacementGroupFactory
from ray.tune.experiment import Experiment as Specification
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SearchAlgorithm
from ray.util.placement_group import PlacementGroup

from hposvc.backends.ray.cluster import GONE_S
from hposvc.backends.ray.placement import STRATEGIES, label_selectors, reserved
from hposvc.backends.ray.slot import Slot
from hposvc.errors import OutOfReach
from hposvc.spec.sections import Resources

# Tune 2.60: no result files, no snapshots (hposvc has its journal), no tables, no stacks on stderr.
SETTINGS: Mapping[str, str] = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}
FOLDER = "trials"  # Tune writes nothing there but its errors
LOGGERS = ("ray.tune", "ray.train", "ray.air")
GROUP = "group"  # key of a trial's only result
# Once a slot was released, Tune takes a step so often, and for so long, to end the trial's process.
POLL_S, ENDING_S = 0.1, 10.0


class ExperimentClosed(Exception):
    """Raised in Tune's calls to end the experiment; Tune then ends its trials."""


@dataclass(eq=False)
class TuneSlot(Slot):
    """A slot whose resources are those of a Tune trial."""

    trials: "SlotTrials" = field(kw_only=True)

    def reserve(self) -> None:
        """Have Tune begin a trial."""
        self.requested_at = time.monotonic()
        self.trials.request(self)

    def release(self) -> None:
        """Have Tune give the trial's resources back; the ranks must be gone."""
        self.trials.release(self)

    def place(self, group: PlacementGroup) -> None:
        """Take the placement group of the trial; called in Tune's thread."""
        self._group = group
        placed: Future[Any] = Future()
        placed.set_result(None)
        self.post(self, "placed", placed)

    def fail(self, why: str) -> None:
        """Report that the trial's process died before its first result."""
        failed: Future[Any] = Future()
        failed.set_exception(OutOfReach(why))
        self.post(self, "placed", failed)


class SlotTrial(tune.Trainable):
    """Holds the resources of a slot: its only result is its placement group."""

    def step(self) -> dict[str, Any]:
        return {GROUP: ray.util.get_current_placement_group()}


class _Trial(Trial):
    """A Tune trial that holds a slot, without set-up that Tune repeats for each trial."""

    def __init__(self, slot: TuneSlot, specification: Specification) -> None:
        super().__init__(
            specification.run_identifier,
            trial_id=slot.name.rpartition("/")[2],
            storage=specification.storage,
            placement_group_factory=_request(slot.resources, bool(slot.config.datasets)),
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            stub=True,  # no look-up of the trainable, which is known
        )
        assert self.storage is not None
        self.storage.trial_dir_name = FOLDER

    def get_trainable_cls(self) -> type[SlotTrial]:
        return SlotTrial

    def init_local_path(self) -> None:
        """Do nothing: all trials share the folder that SlotTrials makes."""

    def set_ray_actor(self, ray_actor: Any) -> None:
        """Note the process without a call to it: our results need none of Tune's default values."""
        self.temporary_state.ray_actor = ray_actor


class SlotTrials(SearchAlgorithm):
    """The search algorithm that makes a Tune trial of each slot that the pool requests."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requested: list[TuneSlot] = []
        self._slots: dict[str, TuneSlot] = {}  # by the id of their trial
        self._trials: dict[TuneSlot, Trial] = {}
        self._unplaced: set[TuneSlot] = set()  # whose trial has no process yet
        self._released: set[TuneSlot] = set()
        self._settled_at = 0.0  # monotonic seconds; then the trials of released slots have ended
        self._closed = False
        self._specification: Specification | None = None

    # Called by the driver.
    def request(self, slot: TuneSlot) -> None:
        """Have Tune begin a trial for a slot."""
        with self._changed:
            self._requested.append(slot)
            self._changed.notify_all()

    def release(self, slot: TuneSlot) -> None:
        """Have Tune give the resources of a slot back."""
        with self._changed:
            if slot in self._requested:
                self._requested.remove(slot)
            elif slot in self._trials:
                self._released.add(slot)
            self._changed.notify_all()

    def close(self) -> None:
        """End the experiment at Tune's next call."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # Called by Tune.
    def add_configurations(self, experiments: Any) -> None:
        [self._specification] = experiments
        self._staging().joinpath(FOLDER).mkdir(parents=True)

    def next_trial(self) -> Trial | None:
        """Return the trial of a requested slot, or None; wait where Tune has nothing else to do."""
        with self._changed:
            if not self._unplaced:  # Tune itself waits for resources
                wait_s = POLL_S if time.monotonic() < self._settled_at else None
                self._changed.wait_for(
                    lambda: self._requested or self._released or self._closed, wait_s
                )
            if self._closed:
                raise ExperimentClosed
            if not self._requested:
                return None
            slot = self._requested.pop(0)
            assert self._specification is not None
            trial = _Trial(slot, self._specification)
            self._trials[slot], self._slots[trial.trial_id] = trial, slot
            self._unplaced.add(slot)
            return trial

    def place(self, trial: Trial, group: PlacementGroup) -> None:
        """Give a slot the placement group of its trial."""
        with self._changed:
            slot = self._slots[trial.trial_id]
            self._unplaced.discard(slot)
        slot.place(group)

    def fail(self, trial: Trial) -> None:
        """Forget a trial whose process died."""
        with self._changed:
            slot = self._slots[trial.trial_id]
            was_unplaced = slot in self._unplaced
            self._forget(slot)
        if was_unplaced:  # otherwise its ranks died too, as Tune removes their placement group
            file = trial.error_file
            lines = Path(file).read_text().strip().splitlines() if file else []
            reason = lines[-1].strip() if lines else "Tune does not say why"
            slot.fail(f"the trial's process died: {reason}")

    def pause_released(self, tune_controller: Any) -> None:
        """Pause the trials of released slots, which gives their resources back.

        Tune never continues them. While any trial is paused, Tune does not wait for new ones in a
        loop of its own, in which it would not notice that resources are free.
        """
        with self._changed:
            released = list(self._released)
        for slot in released:
            trial = self._trials[slot]
            tune_controller.pause_trial(trial, should_checkpoint=False)
            if trial.status != Trial.PENDING:  # then Tune has not scheduled it yet
                self._settled_at = time.monotonic() + ENDING_S
                with self._changed:
                    self._forget(slot)

    def forget_files(self) -> None:
        """Delete the files that Tune left in Ray's own folder on this machine."""
        if self._specification is not None:
            home = self._staging().parent
            shutil.rmtree(home, ignore_errors=True)
            with suppress(OSError):  # other experiments of the same second use it
                home.parent.rmdir()

    def _forget(self, slot: TuneSlot) -> None:
        self._unplaced.discard(slot)
        self._released.discard(slot)
        self._trials.pop(slot, None)

    def _staging(self) -> Path:
        assert self._specification is not None
        return Path(self._specification.storage.experiment_driver_staging_path)


class TrialHolder(TrialScheduler):
    """The trial scheduler that lets every trial keep its resources until its slot is released."""

    def __init__(self, trials: SlotTrials) -> None:
        self._trials = trials

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        pass

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        self._trials.pause_released(tune_controller)
        return None

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        self._trials.place(trial, result[GROUP])
        return str(TrialScheduler.NOOP)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        self._trials.fail(trial)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Any) -> None:
        pass

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        pass

    def debug_string(self) -> str:
        return "slots of hposvc"


class Experiment:
    """A Tune experiment running in a thread until it is ended.

    Args:
        folder: the experiment's own; deleted at the end.
        slots: the most slots at once.
    """

    def __init__(self, name: str, folder: Path, slots: int) -> None:
        self.trials = SlotTrials()
        self._name, self._folder = name, folder
        settings = {**SETTINGS, "TUNE_MAX_PENDING_TRIALS_PG": str(slots)}
        self._original_environ = {name: os.environ.get(name) for name in settings}
        self._levels = {name: logging.getLogger(name).level for name in LOGGERS}
        os.environ.update(settings)
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tune", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended Tune's own loop, if one did."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """End the experiment and clean up."""
        self.trials.close()
        self._thread.join(GONE_S)
        for name, value in self._original_environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        shutil.rmtree(self._folder, ignore_errors=True)
        self.trials.forget_files()

    def _run(self) -> None:
        try:
            tune.run(
                SlotTrial,
                name=self._name,
                search_alg=self.trials,
                scheduler=TrialHolder(self.trials),
                storage_path=str(self._folder),
                checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
                max_failures=0,
                raise_on_failed_trial=False,
                verbose=0,
            )
        except ExperimentClosed:
            pass
        except BaseException as error:  # noqa: BLE001 - the driver's thread raises it again
            self._error = error


def _request(resources: Resources, datasets: bool) -> PlacementGroupFactory:
    """Request a bundle for each rank; the trial's own process takes no resources."""
    return PlacementGroupFactory(
        [{}, *[reserved(resources, datasets)] * resources.ranks],
        strategy=STRATEGIES[resources.placement],
        bundle_label_selector=label_selectors(resources) or None,  # Tune drops the empty bundle
    )
