"""When a running trial gets the ranks that others have left: a question about a sweep's state.

Its order ends at its next report, however long that takes, and another goes on from its newest
checkpoint on more ranks; a Task's batch is that of all ranks together, so it learns the same. That
costs the start of a process group, and the steps since the checkpoint: it must have more to do.
"""

from hposvc.ending import decided
from hposvc.events import WIDER, Event
from hposvc.state import SweepState
from hposvc.trial import TrialState

WORTH_S = 60.0  # of work left in its order at the pace so far; a start takes some five seconds
DEAR = 4  # how much more has to be left than is done again


def widen(state: SweepState, ranks: int, now: float) -> list[Event]:
    """The word to each trial that is to go on with so many ranks, once it can."""
    return [
        decided(now, trial, "park", WIDER, f"from {_workers(trial)} workers to {ranks}")
        for trial in state.live()
        if _workers(trial) < ranks and gained_s(trial, now) > WORTH_S
    ]


def gained_s(trial: TrialState, now: float) -> float:
    """Seconds until a trial's order is done at its pace, less what a new order would do again.

    0 where that is not to be had: the trial waits for a decision, was told to end, or has no
    checkpoint of this order, so that it would begin anew.
    """
    order = trial.order
    told = trial.stop is not None or trial.yields or trial.parked or trial.diverged
    if order is None or told or trial.awaiting is not None:
        return 0.0
    saved = trial.newest[1]
    if saved < order.first:
        return 0.0
    pace_s = (now - trial.ordered_at) / (trial.step - order.first + 1)
    return pace_s * (order.until - trial.step - DEAR * (trial.step - saved))


def _workers(trial: TrialState) -> int:
    return 0 if trial.order is None else trial.order.workers
