"""The Tune trainable: each order is a Tune trial, in a process kept for the next order."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune

from hposvc.backends.tune.tune_slot import TuneSlot
from trainables.runtime.assignment import Assignment
from trainables.runtime.wire import Call

TASK, MESSAGES = "task", "heard"  # keys of a trial's config, and of a result


@dataclass(frozen=True)
class Task:
    """The order of a Tune trial, and the address of the driver."""

    call: Call  # how to reach the driver
    assignment: Assignment

    def __deepcopy__(self, memo: object) -> "Task":
        return self  # Tune copies the config of each trial, and a Task never changes


class OrderTrial(tune.Trainable):
    """Passes an order to the ranks of its slot, and their reports to Tune."""

    def setup(self, config: dict[str, Any]) -> None:
        task: Task = config[TASK]
        self._slot = TuneSlot(task.call)
        self._begin(task)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config[TASK])
        return True

    def _begin(self, task: Task) -> None:
        self._slot.begin(task.assignment)
        self.config = {}  # Tune would send the config back with each result

    def step(self) -> dict[str, Any]:
        return {MESSAGES: self._slot.next_messages()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Leave: Tune asks for a checkpoint only when the slot must release its resources."""
        self._slot.leave()
        Path(checkpoint_dir).rmdir()
        ray.actor.exit_actor()

    def cleanup(self) -> None:
        self._slot.leave()
