"""The share of time and memory that each of K trials training at once reports.

A shared step, that of all trials, is measured once. Its times are divided evenly, so the times of
all trials add up to those of the process. Samples per second are the trial's own by the clock, and
add up as well. Memory is that of the process, the same for all trials.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from trainables.monitoring import memory
from trainables.monitoring.clock import Clock
from trainables.monitoring.train_monitor import TrainMonitor
from trainables.worker import Worker


@dataclass(frozen=True)
class SharedStep:
    """The time and memory of a step of all trials."""

    times: Mapping[str, float]  # mean seconds of an update, by phase; empty: not timed
    updates: int
    trials: int
    memory: Mapping[str, float]  # metrics

    @classmethod
    def over(cls, clock: Clock, updates: int, trials: int, like: Tensor) -> Self:
        """Return the shared step that ends now, on the device of `like`."""
        times = clock.collect()
        if times:
            times["communication"] = 0.0  # reported as by a trial running alone
        return cls(times, updates, trials, memory.measure(like.device).metrics)


class SharedTrainMonitor(TrainMonitor):
    """The monitor of a trial that trains at once with others."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._shared_step = SharedStep({}, 0, 1, {})
        self._peak = None  # FLOPs of several trials at once are not counted

    def record(self, shared_step: SharedStep) -> None:
        """Record the step that the trial is about to report."""
        self._shared_step, self._times, self._updates = (
            shared_step,
            dict(shared_step.times),
            shared_step.updates,
        )

    def collect(self, samples: int, elements: float) -> dict[str, float]:
        metrics = super().collect(samples, elements)
        shares = {
            name: value / self._shared_step.trials
            for name, value in metrics.items()
            if name.endswith("_ms")
        }
        return {**metrics, **shares, **self._shared_step.memory}
