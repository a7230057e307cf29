"""A Task trained for a while, for what it takes: no evaluation, and no checkpoint.

It is a trainable that any backend runs as it runs all others.
"""

from collections.abc import Mapping

from trainables import load
from trainables.fitting.fit import prepare
from trainables.forecasting.excerpt import excerpt
from trainables.randomness import preserved
from trainables.worker import Params, Worker

PREFIX = "brief."
TASK, UPDATES = f"{PREFIX}trainable", f"{PREFIX}updates"


def train(params: Params, worker: Worker) -> None:
    """Make the same number of updates a step, and report the gauges of each step.

    Args:
        params: the fields of the Task, its name (`brief.trainable`), and how many updates make a
            step (`brief.updates`).
    """
    own = {name: value for name, value in params.items() if not name.startswith(PREFIX)}
    task = excerpt(load.resolve(str(params[TASK]))(**own), int(str(params[UPDATES])))
    with preserved(), prepare(task, worker) as session:
        for step in worker.steps():
            total, count = session.strategy.sum(session.train_epoch(step).clone()).tolist()
            samples = len(session.passes.data.train)
            found: Mapping[str, float] = session.gauges.take(samples, count)
            worker.report(step, {"train/loss": total / max(count, 1), **found})
