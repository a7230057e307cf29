"""The tiny model as a worker function of Ray Train, which trials and nested trainers run alike."""

from typing import Any

import tiny
from ray import train


def train_loop_per_worker(config: dict[str, Any]) -> None:
    """Report each of the trial's updates."""
    training = tiny.Training(config, train.get_context().get_world_rank())
    for step in range(1, tiny.STEPS + 1):
        train.report(training.step(step))
