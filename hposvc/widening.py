"""When a running trial gets the ranks that others have left: a question about a sweep's state.

Its order ends with a checkpoint at its next report, and another goes on from there on more ranks;
a Task's batch is that of all ranks together, so it learns the same. That costs the start of a
process group, so it must have enough left to do.
"""

from hposvc.ending import decided
from hposvc.events import Event
from hposvc.state import SweepState
from hposvc.trial import TrialState

WIDER = "wider"  # the reason that is told
WORTH_S = 60.0  # of work left in its order at the pace so far; a start takes some five seconds


def widen(state: SweepState, ranks: int, now: float) -> list[Event]:
    """The word to each trial that is to go on with so many ranks, once it can."""
    return [
        decided(now, trial, "park", WIDER, f"from {_workers(trial)} workers to {ranks}")
        for trial in state.live()
        if _workers(trial) < ranks and left_s(trial, now) > WORTH_S
    ]


def left_s(trial: TrialState, now: float) -> float:
    """Seconds until a trial's order is done at its pace; 0 where that is not to be had.

    A trial that waits for a decision, was told to end, or has not reported in this order is left
    alone.
    """
    order = trial.order
    told = trial.stop is not None or trial.yields or trial.parked or trial.diverged
    if order is None or told or trial.awaiting is not None:
        return 0.0
    done = trial.step - order.first + 1
    if done < 1:
        return 0.0
    return (now - trial.ordered_at) / done * (order.until - trial.step)


def _workers(trial: TrialState) -> int:
    return 0 if trial.order is None else trial.order.workers
