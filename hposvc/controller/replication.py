"""Replicates: when trials are trained again with other random numbers.

The baseline's are the first orders after its own trial, so that the noise is known early; slots
that it does not need go on with the search. Those that run at a target go on to their ends.

Those of finalists begin when the search has nothing left to run and nobody ended the sweep. They
may use the reserve of the budget; when all of the budget is used up, those that run are ended.
"""

from collections.abc import Sequence
from dataclasses import replace

from hposvc.controller.stopping import BROKEN, spending, stop_running
from hposvc.events import Closed, Event
from hposvc.schedulers.scheduler import SearchDone, Wait
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from trainables.contract import Order


def due(state: SweepState) -> bool:
    """Return whether replicates are to run once the search is over."""
    replicates, options = state.replicates, state.spec.finalists
    if options is None or state.asked in ("stop", "kill") or state.resting:
        return False
    if replicates.closed is not None or state.closed in BROKEN:
        return False
    return all(spent < limit for spent, limit in spending(state, state.now))


def baseline(state: SweepState) -> Order | None:
    """Return the next order of the baseline; None: it has none ready."""
    backing_off = state.replicates.trials.backing_off
    pending = (trial for trial in state.replicates.baseline if trial.state == "PENDING")
    ready = next((trial for trial in pending if trial.id not in backing_off), None)
    return None if ready is None else _order(state, ready)


def baseline_left(state: SweepState) -> int:
    """Return how many replicates of the baseline wait for an order."""
    if state.halted or state.resting:
        return 0
    return sum(trial.state == "PENDING" for trial in state.replicates.baseline)


def step(state: SweepState) -> Order | Wait | SearchDone:
    """Return the work for a free slot when the search is over."""
    trials = state.replicates.trials
    pending = [trial for trial in _planned(state) if trial.state == "PENDING"]
    ready = next((trial for trial in pending if trial.id not in trials.backing_off), None)
    if ready is not None:
        return _order(state, ready)
    return Wait() if trials.orders or pending or baseline_left(state) else SearchDone()


def needed_slots(state: SweepState) -> int:
    """Return how many orders of replicates can run at once from now on."""
    options = state.spec.finalists
    if options is None or not due(state):
        return len(state.replicates.trials.orders)
    if not state.replicates.begun:
        return options.top * options.seeds
    return state.replicates.total - state.replicates.done


def check_budget(state: SweepState, now: float) -> list[Event]:
    """Return the end of replicates that have used up the whole budget."""
    replicates = state.replicates
    if all(spent < limit for spent, limit in spending(state, now)):
        return []
    if not replicates.begun:  # the baseline's
        return [*stop_running(replicates.trials.running(), now, "budget")]
    if replicates.closed is not None or replicates.done == replicates.total:
        return []
    return [Closed(now, "budget"), *stop_running(replicates.trials.running(), now, "budget")]


def _planned(state: SweepState) -> Sequence[TrialState]:
    """Return all planned replicates: the first of each trial first, the best trial's leading."""
    options, finalists = state.spec.finalists, state.replicates.finalists
    if options is None or not due(state):
        return []
    if not state.replicates.begun:
        finalists = state.replicates.lineup(state.trials.leaders(options.top), options.seeds)
    return [trial for row in zip(*finalists.values(), strict=True) for trial in row]


def _order(state: SweepState, replicate: TrialState) -> Order:
    """Return the order that continues a replicate from its newest checkpoint."""
    finalist = state.trials[replicate.shown_as]
    order = replicate.next_order(state.next_order, replicate.until, ())
    seed_of = seed_name(finalist, replicate.number)
    return replace(order, seed_of=seed_of, shrink=finalist.shrink + replicate.shrink)


def seed_name(finalist: TrialState, number: int) -> str:
    """Return the seed name of a replicate; six digits keep it apart from trial names."""
    return f"final{number}/t{finalist.number + 1:06d}"
