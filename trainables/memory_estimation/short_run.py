"""A trainable that trains a Task briefly, to measure it: no evaluation, and no checkpoint.

Backends run it as they run any other trainable.
"""

from collections.abc import Mapping
from typing import Any

from trainables import load, nesting
from trainables.memory_estimation.truncated_task import truncate
from trainables.randomness import preserved
from trainables.task import Task
from trainables.trainer.fit import prepare
from trainables.worker import Worker

GROUP = "brief"
TASK, UPDATES = f"{GROUP}.trainable", f"{GROUP}.updates"


def train(params: Mapping[str, Any], worker: Worker) -> None:
    """Make a fixed number of updates per step, and report the measurements of each step.

    Args:
        params: the fields of the Task, and in the group `brief` its name (`trainable`) and the
            number of updates per step (`updates`).
    """
    task, brief = split(params)
    with preserved(), prepare(truncate(task, brief["updates"]), worker) as trainer:
        for step in worker.steps():
            total, count = trainer.strategy.all_reduce_sum(
                trainer.train_steps(step, step)["train/loss"]
            ).tolist()
            samples = len(trainer.passes.data.train)
            measured: Mapping[str, float] = trainer.monitor.collect(samples, count)
            worker.report(step, {"train/loss": total / max(count, 1), **measured})


def split(params: Mapping[str, Any]) -> tuple[Task, Mapping[str, Any]]:
    """Return the Task that parameters name, with its fields, and their group `brief`."""
    fields = {**params}
    brief = fields.pop(GROUP)
    cls = load.resolve(brief["trainable"])
    assert isinstance(cls, type), "a Task, since it has been estimated before"
    task: Task = nesting.build(cls, fields)
    return task, brief
