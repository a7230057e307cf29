"""The driver's time between two events, which no wall clock that is set changes."""

import math
import time

from hposvc.state.sweep import SweepState


class DriverClock:
    """The time of a sweep's last event, and the monotonic seconds since it was first seen here."""

    def __init__(self) -> None:
        self._event, self._seen = math.nan, 0.0

    def now(self, state: SweepState) -> float:
        """Return the driver's time, in seconds of the epoch."""
        now = time.monotonic()
        if state.now != self._event:
            self._event, self._seen = state.now, now
        return state.now + now - self._seen
