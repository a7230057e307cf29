"""Elastic workers: when a running trial gets the ranks that other trials have left.

The trial's order ends at its next report, however long that takes, and another order continues from
its newest checkpoint on more ranks. A Task's batch is that of all ranks together, so the trial
learns the same. The change costs the start of a process group and the steps since the checkpoint,
so it is made only for trials that have more work left than that.
"""

from hposvc.controller.stopping import decided
from hposvc.events import WIDER, Event
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

WORTH_S = 60.0  # least work left in the order at its pace so far; a start takes some 5 s
DEAR = 4  # least ratio of the steps left to the steps that are done again


def regrow(state: SweepState, ranks: int, now: float) -> list[Event]:
    """Return the suspension of each trial that is to continue with this many ranks."""
    return [
        decided(now, trial, "park", WIDER, f"from {_workers(trial)} workers to {ranks}")
        for trial in state.running()
        if _workers(trial) < ranks and gained_s(trial, now) > WORTH_S
    ]


def gained_s(trial: TrialState, now: float) -> float:
    """Return the seconds left in a trial's order at its pace, less the steps done again.

    0 if the trial cannot change its workers: it waits for a decision, was told to end, has no
    checkpoint of this order (it would start over), or has no known last step.
    """
    order = trial.order
    ending = trial.intent is not None or trial.diverged
    if order is None or order.until is None or ending or trial.awaiting is not None:
        return 0.0
    saved = trial.resume_point[1]
    if saved < order.first:
        return 0.0
    pace_s = (now - trial.ordered_at) / (trial.step - order.first + 1)
    return pace_s * (order.until - trial.step - DEAR * (trial.step - saved))


def _workers(trial: TrialState) -> int:
    return 0 if trial.order is None else trial.order.workers
