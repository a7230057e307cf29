"""Measurement of the time that training waits for its data."""

from collections import deque

import torch

from trainables.monitoring.clock import Clock, Mark


class Waiting:
    """A context manager that adds up the time spent in it: on a GPU, the device's own time.

    On a GPU, loading while the device is still busy costs nothing, and counts as nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._mark = Clock(device).mark
        self._start: Mark | None = None
        self._laps: deque[tuple[Mark, Mark]] = deque()  # the device may not have reached them yet
        self._spent = 0.0

    def __enter__(self) -> None:
        self._start = self._mark()

    def __exit__(self, *_: object) -> None:
        if self._start is not None:
            self._laps.append((self._start, self._mark()))
            self._collect()

    def take(self) -> float:
        """Return the seconds since the last take; on a GPU, wait for the device to pass them."""
        if self._laps:
            self._laps[-1][1].synchronize()
            self._collect()
        spent, self._spent = self._spent, 0.0
        return spent

    def _collect(self) -> None:
        while self._laps and self._laps[0][1].query():
            start, end = self._laps.popleft()
            self._spent += start.elapsed_time(end) / 1e3
