"""The Ray Tune experiment that carries out orders: what Tune calls, and the thread it runs in."""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune import CheckpointConfig, PlacementGroupFactory
from ray.tune.experiment import Experiment as Specification
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SearchAlgorithm
from ray.util.placement_group import PlacementGroup, placement_group_table

from hposvc.backends.crew import GONE_S
from hposvc.backends.tune.desk import Desk, Over
from hposvc.backends.tune.slot import Lost
from hposvc.backends.tune.trial import HEARD, TASK, OrderTrial, Task
from trainables.slots.wire import Call, Finished

# Tune 2.60: no result files, no snapshots (the journal is ours), no tables, no stacks on stderr.
SETTINGS: Mapping[str, str] = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_RESULT_BUFFER_LENGTH": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
}
FOLDER = "trials"  # Tune writes nothing there but its errors
LOGGERS = ("ray.tune", "ray.train", "ray.air")


class Request(PlacementGroupFactory):
    """What a slot takes of the cluster; it keeps an eye on the groups that Tune asks for."""

    _asked: tuple[PlacementGroup, ...] = ()  # those that may not be placed yet

    def to_placement_group(self) -> PlacementGroup:
        group: PlacementGroup = super().to_placement_group()
        self._asked = (*self._asked, group)
        return group

    def waits(self) -> bool:
        """Whether the cluster has no room for some group."""
        states = [(group, placement_group_table(group).get("state")) for group in self._asked]
        self._asked = tuple(group for group, state in states if state == "PENDING")
        return bool(self._asked)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_asked": ()}  # it travels with each trial


class _Trial(Trial):
    """One order. What Tune's own would do for each again, though it is the same for all, is not."""

    def __init__(
        self, name: str, task: Task, of: Specification, resources: PlacementGroupFactory
    ) -> None:
        super().__init__(
            of.run_identifier,
            config={TASK: task},
            trial_id=name,
            storage=of.storage,
            placement_group_factory=resources,
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            stub=True,  # no look-up of the trainable: it is known
        )
        assert self.storage is not None
        self.storage.trial_dir_name = FOLDER

    def get_trainable_cls(self) -> type[OrderTrial]:
        return OrderTrial

    def init_local_path(self) -> None:
        """There is one folder for all; see Orders."""

    def set_ray_actor(self, ray_actor: Any) -> None:
        """Note the process, without a call to it: no result of ours needs Tune's default values."""
        self.temporary_state.ray_actor = ray_actor


class Orders(SearchAlgorithm):
    """Makes a trial of each order."""

    def __init__(self, desk: Desk, call: Call, resources: PlacementGroupFactory) -> None:
        self._desk, self._call, self._resources = desk, call, resources
        self._made = 0
        self._specification: Specification | None = None

    def add_configurations(self, experiments: Any) -> None:
        [self._specification] = experiments
        self._staging().joinpath(FOLDER).mkdir(parents=True)

    def next_trial(self) -> Trial | None:
        task = self._desk.next()
        if task is None:
            return None
        assert self._specification is not None
        self._made += 1
        name = f"{task.trial}-{task.order}.{self._made}"
        return _Trial(name, Task(self._call, task), self._specification, self._resources)

    def forget_files(self) -> None:
        """Delete what Tune left in Ray's own folder on this machine."""
        if self._specification is not None:
            home = self._staging().parent
            shutil.rmtree(home, ignore_errors=True)
            with suppress(OSError):  # other experiments of the same second are in it
                home.parent.rmdir()

    def _staging(self) -> Path:
        assert self._specification is not None
        return Path(self._specification.storage.experiment_driver_staging_path)


class Results(TrialScheduler):
    """Hands on what trials report, and lets idle slots stay or go.

    Args:
        bury: waits until nothing of an order is at work any more; whether a slot had it.
        crowded: whether the cluster has no room for some trial.
    """

    def __init__(
        self, desk: Desk, bury: Callable[[int], bool], crowded: Callable[[], bool]
    ) -> None:
        self._desk, self._bury, self._crowded = desk, bury, crowded

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        idle = self._desk.give(trial)
        if idle is not None:
            tune_controller.stop_trial(idle)  # whose process Tune gives to the next at once

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        for trial in self._desk.unwanted():
            if trial.temporary_state.ray_actor is None:
                tune_controller.stop_trial(trial)
        waiting = self._make_room(tune_controller)
        for trial in self._desk.step():
            tune_controller.pause_trial(trial)  # it is asked for a checkpoint, and leaves instead
        return waiting

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        heard = result[HEARD]
        over = isinstance(heard[-1], Finished | Lost)
        if over:
            self._desk.rest(trial)
        self._desk.tell(heard)
        if not over:
            return str(TrialScheduler.CONTINUE)
        self._desk.await_answer()  # the next order, so that Tune need not look for it later
        return str(TrialScheduler.NOOP)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        if self._desk.fail(trial):
            begun = self._bury(trial.config[TASK].assignment.order)
            self._lose(trial, _why(trial), fresh=not begun)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Any) -> None:
        trial.config = {}  # Tune keeps its trials for ever

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A trial is taken back before it has a process."""
        self._desk.fail(trial)
        self._lose(trial, "it was not begun", fresh=True)

    def debug_string(self) -> str:
        return "orders of hposvc"

    def _make_room(self, tune_controller: Any) -> Trial | None:
        """Free an idle slot for a trial that waits for the resources which the slot keeps.

        Tune places trials in their order: while a group waits, the last trial has no process.
        """
        waiting = self._desk.waiting()
        if waiting is None or not self._crowded():
            return None
        idle = self._desk.spare()
        if idle is None:
            return None
        tune_controller.stop_trial(idle)  # whose process Tune gives to the one that we return
        return waiting

    def _lose(self, trial: Trial, why: str, fresh: bool) -> None:
        task = trial.config[TASK].assignment
        self._desk.tell([Lost(task.order, task.trial, why, fresh)])
        self._desk.await_answer()


def _why(trial: Trial) -> str:
    file = trial.error_file
    lines = Path(file).read_text().strip().splitlines() if file else []
    return f"the trial's process died: {lines[-1].strip() if lines else 'Tune does not say why'}"


class Experiment:
    """An experiment in a thread, from now until the desk is closed.

    Args:
        folder: its own; gone at the end.
    """

    def __init__(self, name: str, desk: Desk, orders: Orders, results: Results, folder: Path):
        self._name, self._folder = name, folder
        self._desk, self._orders, self._results = desk, orders, results
        settings = {**SETTINGS, "TUNE_MAX_PENDING_TRIALS_PG": str(desk.limit)}
        self._before = {name: os.environ.get(name) for name in settings}
        self._levels = {name: logging.getLogger(name).level for name in LOGGERS}
        os.environ.update(settings)
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._thread = threading.Thread(target=self._run, name="tune", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for its end; the desk is closed."""
        self._thread.join(GONE_S)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._orders.forget_files()

    def _run(self) -> None:
        try:
            tune.run(
                OrderTrial,
                name=self._name,
                search_alg=self._orders,
                scheduler=self._results,
                storage_path=str(self._folder),
                checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
                reuse_actors=True,
                max_failures=0,
                raise_on_failed_trial=False,
                verbose=0,
            )
        except Over:
            pass
        except BaseException as error:  # noqa: BLE001 - the driver's thread raises it again
            self._desk.tell([error])
