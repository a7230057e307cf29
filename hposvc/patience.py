"""How long what a cluster lost waits until it is tried again."""

from hposvc.events import OWN, Cause

LONGEST_PAUSE_S = 60.0


def pause_s(failures: int) -> float:
    """Seconds until an order that a cluster lost is tried again: none at first, then ever more."""
    return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, 2.0 ** (failures - 1))


def wait_s(cause: Cause, failures: int) -> float:
    """Seconds to wait after so many failures of a cause; nobody waits for what is a trial's own."""
    return 0.0 if cause in (*OWN, "preempt", "storage") else pause_s(failures)
