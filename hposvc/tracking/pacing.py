"""When the recorder looks at the journal, and when it tells MLflow what it found."""

import math
import time

POLL_S = 0.2
IDLE_S = 1.0  # the longest pause between two looks at the journal
# How long points of a trial that runs are gathered: a call of MLflow takes some 10 ms of CPU,
# however few it brings, and a trial that reports ten times a second has a use for those.
GATHER_S = 5.0
BACKOFF_S = 10.0  # the longest between two tries to reach the tracker


class Patience:
    """How long to wait before the next look, whether to tell, and whether to try at all."""

    def __init__(self, give_up_s: float) -> None:
        self.pause_s = 0.0
        self._give_up_s = give_up_s
        self._failing: float | None = None  # since when, monotonic
        self._told = -math.inf  # when MLflow was last, monotonic

    def read(self, pressing: bool) -> bool:
        """Whether to tell now what was read; what is pressing does not wait for more."""
        self.pause_s = POLL_S if pressing else min(IDLE_S, self.pause_s + POLL_S)
        return pressing or time.monotonic() - self._told >= GATHER_S

    def told(self) -> None:
        self._failing = None
        self._told = time.monotonic()

    def failed(self) -> None:
        first = self._failing is None
        self._failing = time.monotonic() if first else self._failing
        self.pause_s = 1.0 if first else min(BACKOFF_S, 2 * self.pause_s)
        self._told = -math.inf  # what failed is not put off once more

    @property
    def spent(self) -> bool:
        return self._failing is not None and time.monotonic() - self._failing >= self._give_up_s
