"""Say what a sweep waits for, in words for people, as far as its journal says."""

from hposvc.events import DriverState
from hposvc.spec.registry import SCHEDULERS, trait
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import duration, listed

NAMED = 2  # trials named in a line
ENDINGS = {"pause": "pauses", "stop": "ends", "kill": "ends", "drain": "ends"}
# Waiting for proposals is mentioned from so many seconds on, and this share of the sweep's time.
LONG_S, LONG_SHARE = 5.0, 0.05


def describe_waits(state: SweepState, now: float, driver: DriverState = "alive") -> list[str]:
    """Return what a sweep waits for; empty: for nothing but its running trials.

    Args:
        now: the time, on the clock of the sweep's events.
    """
    if state.finished or driver != "alive":
        return []
    lines = []
    if state.full:
        lines.append(f"room on the disk: {state.full}")
    if state.asked in ENDINGS:
        lines.append(f"running trials, then it {ENDINGS[state.asked]}")
    if state.queued:
        lines.append("its first slot")
    if waiting := [trial for trial in state.trials.live() if trial.order is None]:
        lines += _describe_trials(state, waiting, now)
    if rung := _describe_rung(state):
        lines.append(rung)
    if state.waited_s >= max(LONG_S, LONG_SHARE * state.elapsed_s):
        lines.append(f"proposals, {duration(state.waited_s)} so far")
    return lines


def _describe_trials(state: SweepState, waiting: list[TrialState], now: float) -> list[str]:
    """Describe the trials that need a slot, and those that are tried again later."""
    due = state.trials.backing_off
    lines = []
    if for_slot := [trial.id for trial in waiting if trial.id not in due]:
        lines.append(f"a slot for {listed(for_slot, NAMED)}")
    if due:
        next_s = max(0.0, min(due.values()) - now)
        lines.append(f"retry of {listed(due, NAMED)} in {duration(next_s)}")
    return lines


def _describe_rung(state: SweepState) -> str:
    """Describe paused trials, where a decision waits for others; empty: nothing else could run."""
    paused = state.trials.counts.get("PAUSED", 0)
    alone = trait(SCHEDULERS, state.spec.scheduler, "ends_steadily")
    if not paused or alone or state.closed is None or not state.trials.orders:
        return ""
    return f"the rest of a rung, for {paused} paused trial{'s' * (paused > 1)}"
