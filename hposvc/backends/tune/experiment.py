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

from hposvc.backends.ray.rank_group import GONE_S
from hposvc.backends.tune.exchange import ExperimentClosed, OrderExchange
from hposvc.backends.tune.trainable import MESSAGES, TASK, OrderTrial, Task
from hposvc.backends.tune.tune_slot import SlotLost
from trainables.runtime.assignment import Outcome
from trainables.runtime.wire import Call

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


class Request(PlacementGroupFactory):
    """The resources of a slot; remembers the placement groups that Tune requests."""

    _asked: tuple[PlacementGroup, ...] = ()  # groups that may not be placed yet

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
        return {**super().__getstate__(), "_asked": ()}  # pickled with each trial


class _Trial(Trial):
    """A Tune trial that carries out one order, without set-up that Tune repeats for each trial."""

    def __init__(
        self, name: str, task: Task, specification: Specification, resources: PlacementGroupFactory
    ) -> None:
        super().__init__(
            specification.run_identifier,
            config={TASK: task},
            trial_id=name,
            storage=specification.storage,
            placement_group_factory=resources,
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            stub=True,  # no look-up of the trainable, which is known
        )
        assert self.storage is not None
        self.storage.trial_dir_name = FOLDER

    def get_trainable_cls(self) -> type[OrderTrial]:
        return OrderTrial

    def init_local_path(self) -> None:
        """Do nothing: all trials share the folder that Orders makes."""

    def set_ray_actor(self, ray_actor: Any) -> None:
        """Note the process without a call to it: our results need none of Tune's default values."""
        self.temporary_state.ray_actor = ray_actor


class Orders(SearchAlgorithm):
    """The search algorithm that makes a Tune trial of each order."""

    def __init__(
        self, exchange: OrderExchange, call: Call, resources: PlacementGroupFactory
    ) -> None:
        self._exchange, self._call, self._resources = exchange, call, resources
        self._made = 0
        self._specification: Specification | None = None

    def add_configurations(self, experiments: Any) -> None:
        [self._specification] = experiments
        self._staging().joinpath(FOLDER).mkdir(parents=True)

    def next_trial(self) -> Trial | None:
        assignment = self._exchange.next_order()
        if assignment is None:
            return None
        assert self._specification is not None
        self._made += 1
        order = assignment.order
        name = f"{order.trial}-{order.id}.{self._made}"
        task = Task(self._call, assignment)
        return _Trial(name, task, self._specification, self._resources)

    def forget_files(self) -> None:
        """Delete the files that Tune left in Ray's own folder on this machine."""
        if self._specification is not None:
            home = self._staging().parent
            shutil.rmtree(home, ignore_errors=True)
            with suppress(OSError):  # other experiments of the same second use it
                home.parent.rmdir()

    def _staging(self) -> Path:
        assert self._specification is not None
        return Path(self._specification.storage.experiment_driver_staging_path)


class Results(TrialScheduler):
    """The trial scheduler that passes reports to the driver, and keeps or ends idle slots.

    Args:
        await_ranks_gone: waits until all ranks of an order are gone; returns whether a slot had
            the order.
        is_crowded: returns whether the cluster has no room for some trial.
    """

    def __init__(
        self,
        exchange: OrderExchange,
        await_ranks_gone: Callable[[int], bool],
        is_crowded: Callable[[], bool],
    ) -> None:
        self._exchange = exchange
        self._await_ranks_gone = await_ranks_gone
        self._is_crowded = is_crowded

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        idle = self._exchange.register(trial)
        if idle is not None:
            tune_controller.stop_trial(idle)  # Tune gives its process to the next trial at once

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        for trial in self._exchange.withdrawn_trials():
            if trial.temporary_state.ray_actor is None:
                tune_controller.stop_trial(trial)
        waiting = self._make_room(tune_controller)
        for trial in self._exchange.step():
            tune_controller.pause_trial(trial)  # asked for a checkpoint, the slot leaves instead
        return waiting

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        messages = result[MESSAGES]
        over = isinstance(messages[-1], Outcome | SlotLost)
        if over:
            self._exchange.mark_idle(trial)
        self._exchange.send(messages)
        if not over:
            return str(TrialScheduler.CONTINUE)
        # The answer may be the next order, which Tune then need not look for later.
        self._exchange.await_answer()
        return str(TrialScheduler.NOOP)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        if self._exchange.remove(trial):
            begun = self._await_ranks_gone(trial.config[TASK].assignment.order.id)
            self._report_lost(trial, _describe_death(trial), fresh=not begun)

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Any) -> None:
        trial.config = {}  # Tune keeps its trials for ever

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Report the order of a trial that was removed before it had a process."""
        self._exchange.remove(trial)
        self._report_lost(trial, "the order had not begun", fresh=True)

    def debug_string(self) -> str:
        return "orders of hposvc"

    def _make_room(self, tune_controller: Any) -> Trial | None:
        """Stop an idle slot whose resources a trial waits for, and return that trial.

        Tune places trials in their order: while a group waits, the last trial has no process.
        """
        waiting = self._exchange.waiting_trial()
        if waiting is None or not self._is_crowded():
            return None
        idle = self._exchange.pop_idle()
        if idle is None:
            return None
        tune_controller.stop_trial(idle)  # Tune gives its process to the trial returned here
        return waiting

    def _report_lost(self, trial: Trial, why: str, fresh: bool) -> None:
        self._exchange.send([SlotLost(trial.config[TASK].assignment.order.id, why, fresh)])
        self._exchange.await_answer()


def _describe_death(trial: Trial) -> str:
    file = trial.error_file
    lines = Path(file).read_text().strip().splitlines() if file else []
    return f"the trial's process died: {lines[-1].strip() if lines else 'Tune does not say why'}"


class Experiment:
    """A Tune experiment running in a thread until the exchange is closed.

    Args:
        folder: the experiment's own; deleted at the end.
    """

    def __init__(
        self, name: str, exchange: OrderExchange, orders: Orders, results: Results, folder: Path
    ):
        self._name, self._folder = name, folder
        self._exchange, self._orders, self._results = exchange, orders, results
        settings = {**SETTINGS, "TUNE_MAX_PENDING_TRIALS_PG": str(exchange.limit)}
        self._original_environ = {name: os.environ.get(name) for name in settings}
        self._levels = {name: logging.getLogger(name).level for name in LOGGERS}
        os.environ.update(settings)
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._thread = threading.Thread(target=self._run, name="tune", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait for the experiment's end, and clean up; the exchange must be closed."""
        self._thread.join(GONE_S)
        for name, value in self._original_environ.items():
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
        except ExperimentClosed:
            pass
        except BaseException as error:  # noqa: BLE001 - the driver's thread raises it again
            self._exchange.send([error])
