"""A trainable that trains a Task briefly, to measure it: no evaluation, and no checkpoint.

Backends run it as they run any other trainable.
"""

from collections.abc import Mapping

from trainables import load
from trainables.memory_estimation.truncated_task import truncate
from trainables.randomness import preserved
from trainables.trainer.fit import prepare
from trainables.worker import Params, Worker

PREFIX = "brief."
TASK, UPDATES = f"{PREFIX}trainable", f"{PREFIX}updates"


def train(params: Params, worker: Worker) -> None:
    """Make a fixed number of updates per step, and report the measurements of each step.

    Args:
        params: the fields of the Task, its name (`brief.trainable`), and the number of updates
            per step (`brief.updates`).
    """
    fields = {name: value for name, value in params.items() if not name.startswith(PREFIX)}
    task = truncate(load.resolve(str(params[TASK]))(**fields), int(str(params[UPDATES])))
    with preserved(), prepare(task, worker) as trainer:
        for step in worker.steps():
            total, count = trainer.strategy.all_reduce_sum(
                trainer.train_epoch(step).clone()
            ).tolist()
            samples = len(trainer.passes.data.train)
            measured: Mapping[str, float] = trainer.monitor.collect(samples, count)
            worker.report(step, {"train/loss": total / max(count, 1), **measured})
