"""Backoff: how long an order that a cluster lost waits until it is tried again."""

from hposvc.events import OWN, Cause

LONGEST_PAUSE_S = 60.0


def pause_s(failures: int) -> float:
    """Return the seconds until the next try: 0 after the first loss, then twice as long each."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, 2.0 ** (failures - 1))


def wait_s(cause: Cause, failures: int) -> float:
    """Return the seconds to wait after this many failures of a cause; 0 for a trial's own fault."""
    return 0.0 if cause in (*OWN, "preempt", "storage") else pause_s(failures)
