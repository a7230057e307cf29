"""What each of K trials that train at once reports of time and memory: its part of the whole.

A turn, a step of all of them, is measured once. Its times are dealt out evenly, so those of all
trials add up to what the process took. Samples a second are the trial's own by the clock, and add
up as well. Memory is the process's, the same for all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from trainables.watching import memory
from trainables.watching.clock import Clock
from trainables.watching.gauges import Gauges
from trainables.worker import Worker


@dataclass(frozen=True)
class Turn:
    """What a step of all trials took."""

    times: Mapping[str, float]  # mean seconds of an update of them all, by part; empty: not timed
    updates: int
    trials: int
    memory: Mapping[str, float]  # metrics

    @classmethod
    def over(cls, clock: Clock, updates: int, trials: int, like: Tensor) -> Self:
        """The turn that ends now, on the device of `like`."""
        times = clock.take()
        if times:
            times["communication"] = 0.0  # there is none, and a trial alone says so
        return cls(times, updates, trials, memory.measure(like.device).metrics)


class Shares(Gauges):
    """The gauges of a trial in company."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._turn = Turn({}, 0, 1, {})
        self._peak = None  # nobody counts what trials multiply together

    def hear(self, turn: Turn) -> None:
        """The trial was in this turn, and is about to report it."""
        self._turn, self._times, self._updates = turn, dict(turn.times), turn.updates

    def take(self, samples: int, elements: float) -> dict[str, float]:
        found = super().take(samples, elements)
        shares = {
            name: value / self._turn.trials for name, value in found.items() if name.endswith("_ms")
        }
        return {**found, **shares, **self._turn.memory}
