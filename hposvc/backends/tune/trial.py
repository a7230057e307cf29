"""The trainable that Tune runs: one Tune trial an order, in a process that is kept for the next."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import tune

from hposvc.backends.tune.slot import TuneSlot
from trainables.slots.assignment import Assignment
from trainables.slots.wire import Call

TASK, HEARD = "task", "heard"  # keys of a trial's config, and of a result


@dataclass(frozen=True)
class Task:
    """What a trial is to do."""

    call: Call  # the line to the driver
    assignment: Assignment

    def __deepcopy__(self, memo: object) -> "Task":
        return self  # Tune copies the config of each trial; this never changes


class OrderTrial(tune.Trainable):
    """Hands an order to the ranks of its slot, and their reports to Tune."""

    def setup(self, config: dict[str, Any]) -> None:
        task: Task = config[TASK]
        self._slot = TuneSlot(task.call)
        self._begin(task)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config[TASK])
        return True

    def _begin(self, task: Task) -> None:
        self._slot.begin(task.assignment)
        self.config = {}  # Tune sends it back with each result

    def step(self) -> dict[str, Any]:
        return {HEARD: self._slot.hear()}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Leave: Tune asks for this only when the slot is to give its resources back."""
        self._slot.leave()
        Path(checkpoint_dir).rmdir()
        ray.actor.exit_actor()

    def cleanup(self) -> None:
        self._slot.leave()
