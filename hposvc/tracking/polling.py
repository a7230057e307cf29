"""The timing of the recorder: when to read the journal, and when to send to MLflow."""

import math
import select
import time
from collections.abc import Callable

POLL_S = 0.2
IDLE_S = 1.0  # the longest pause between two reads of the journal
# Seconds for which points of a running trial are collected: each MLflow call takes some 10 ms of
# CPU, however few points it sends, and a trial that reports ten times a second needs that CPU.
GATHER_S = 5.0
HANG_S = 120.0  # a longer call ends the process, with its stacks in the log
BACKOFF_S = 10.0  # the longest pause between two attempts to reach the tracker
FEWEST = 2  # attempts before a tracker counts as one that does not answer


class Pacing:
    """Decides how long to pause, whether to send what was read, and when to give up."""

    def __init__(
        self, give_up_s: float, answers: Callable[[bool], None] = lambda answers: None
    ) -> None:
        """Pace a recorder.

        Args:
            answers: called when the tracker first answers, ceases to, and answers again.
        """
        self.pause_s = 0.0
        self._say_answers = answers
        self._give_up_s = give_up_s
        self._failing_since: float | None = None  # monotonic seconds of the first failure in a row
        self._sent_at = -math.inf  # monotonic seconds of the last successful send
        self._failures = 0  # in a row
        self._has_answered = False

    def should_send(self, pressing: bool) -> bool:
        """Set the next pause, and return whether to send now; `pressing` entries never wait."""
        self.pause_s = POLL_S if pressing else min(IDLE_S, self.pause_s + POLL_S)
        return pressing or time.monotonic() - self._sent_at >= GATHER_S

    def record_sent(self) -> None:
        if self._failures or not self._has_answered:  # the recorder before may have said otherwise
            self._say_answers(True)
        self._failing_since, self._failures, self._has_answered = None, 0, True
        self._sent_at = time.monotonic()

    def record_failure(self, answers: bool = False) -> None:
        """Set the next pause after an error.

        Args:
            answers: whether the error was an answer of the tracker.
        """
        first_failure = self._failing_since is None
        self._failing_since = time.monotonic() if first_failure else self._failing_since
        self.pause_s = 1.0 if first_failure else min(BACKOFF_S, 2 * self.pause_s)
        self._failures += 1
        if first_failure and not answers:
            self._say_answers(False)
        self._sent_at = -math.inf  # a failed send does not wait for more points

    @property
    def gave_up(self) -> bool:
        """Whether to wait no more for a tracker once the driver is gone.

        One that has never answered is unlikely to do so now.
        """
        if not self._has_answered and self._failures >= FEWEST:
            return True
        return (
            self._failing_since is not None
            and time.monotonic() - self._failing_since >= self._give_up_s
        )


def is_driver_gone(driver: int, timeout_s: float) -> bool:
    """Wait up to `timeout_s` for the driver to close its end or die; return whether it has.

    Args:
        driver: file descriptor of a pipe whose other end the driver holds open.
    """
    return bool(select.select([driver], [], [], timeout_s)[0])
