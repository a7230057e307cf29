"""Replicates: when trials are trained again with other random numbers.

The baseline's are the first orders after its own trial, so that the noise is known early, and
further seeds of the search come before its next trials; slots that neither needs go on with the
search. Those that run at a target go on to their ends.

Those of finalists begin when the search has nothing left to run and nobody ended the sweep. They
may use the reserve of the budget; when all of the budget is used up, those that run are ended.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from hposvc.controller.stopping import BROKEN, decided, spending, stop_running
from hposvc.events import NO_NOISE, Closed, Event
from hposvc.schedulers.scheduler import SearchDone, Wait
from hposvc.state import race
from hposvc.state.finalists import SEEDLESS
from hposvc.state.replicates import UNLIKE, common_seed
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from trainables.contract import Order

ALIKE = 5  # reports of a further seed that are those of the first one


def due(state: SweepState) -> bool:
    """Return whether replicates are to run once the search is over."""
    replicates, options = state.replicates, state.spec.finalists
    broken = replicates.closed is not None or state.closed in BROKEN
    return options is not None and not broken and _has_room(state)


def _has_room(state: SweepState) -> bool:
    """Return whether nobody ended the sweep, and some of its budget is left."""
    if state.asked in ("stop", "kill") or state.resting:
        return False
    return all(spent < limit for spent, limit in spending(state, state.now).values())


def beside(state: SweepState) -> Order | None:
    """Return the next order of the baseline, or of a trial's next seed; None: none is ready."""
    backing_off = state.replicates.trials.backing_off
    ready = next((one for one in _begun(state) if one.id not in backing_off), None)
    if ready is not None:
        return _order(state, ready)
    for trial, number in race.racers(state):
        return _order(state, state.replicates.replicate(trial, number))
    return None


def together(order: Order) -> Order:
    """Return the order of a trial whose rungs wait for further seeds: it ends at its next rung."""
    rungs = (step for step in order.milestones if step >= order.first)
    return replace(order, until=next(rungs, order.until), milestones=())


def left_beside(state: SweepState) -> int:
    """Return how many replicates of the baseline and seeds of the search wait for an order."""
    if state.halted or state.resting:
        return 0
    return len(_begun(state)) + len(race.racers(state))


def _begun(state: SweepState) -> list[TrialState]:
    """Return the replicates beside the search that began, or were planned, and wait."""
    going_on = (one for one in state.replicates.seeded.values() if not one.over or one.at_end)
    seeds = [seed for trial in going_on for seed in trial.seeds]
    asked = state.replicates.asked if _has_room(state) else ()
    beside = (*state.replicates.baseline, *asked, *seeds)
    waiting = [one for one in beside if one.state == "PENDING"]
    behind = (one for one in seeds if one.state == "PAUSED" and one.reached < _until(state, one))
    return [*waiting, *behind]


def _until(state: SweepState, replicate: TrialState) -> float:
    """Return the last step of a replicate's next order; infinite: where its trainable returns.

    A seed that a rung waits for goes as far as its trial, all others to the end.
    """
    trial = state.trials[replicate.shown_as]
    is_waited_for = replicate.number < trial.together and not trial.at_end
    until = trial.until if is_waited_for else state.spec.last_step
    return math.inf if until is None else until


def step(state: SweepState) -> Order | Wait | SearchDone:
    """Return the work for a free slot when the search is over."""
    trials = state.replicates.trials
    planned = [*_planned(state), *(state.replicates.asked if _has_room(state) else ())]
    pending = [trial for trial in planned if trial.state == "PENDING"]
    ready = next((trial for trial in pending if trial.id not in trials.backing_off), None)
    if ready is not None:
        return _order(state, ready)
    return Wait() if trials.orders or pending or left_beside(state) else SearchDone()


def needed_slots(state: SweepState) -> int:
    """Return how many orders of replicates can run at once from now on."""
    options, asked = state.spec.finalists, state.replicates.asked if _has_room(state) else ()
    waiting = sum(one.state == "PENDING" for one in asked)
    if options is None or waiting or not due(state):
        return len(state.replicates.trials.orders) + waiting
    if not state.replicates.begun:
        return options.top * options.seeds
    return state.replicates.total - state.replicates.done


def check_budget(state: SweepState, now: float) -> list[Event]:
    """Return the end of replicates that have used up the whole budget."""
    replicates = state.replicates
    if all(spent < limit for spent, limit in spending(state, now).values()):
        return []
    over = replicates.closed is not None or replicates.done == replicates.total
    if not replicates.begun or over:  # the baseline's, and those that users asked for
        return [*stop_running(replicates.trials.running(), now, "budget")]
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
    until = _until(state, replicate)
    order = replicate.next_order(state.next_order, None if until == math.inf else int(until), ())
    number, own = replicate.number, state.replicates.own_seeds
    first = _first_version(state, finalist)
    seed_of = common_seed(number) if number <= own else seed_name(first, number - own)
    return replace(order, seed_of=seed_of, shrink=finalist.shrink + replicate.shrink)


def _first_version(state: SweepState, trial: TrialState) -> TrialState:
    """Return the first trial with the values of a trial, whatever version of the code it has.

    Versions are compared by runs with the same random numbers.
    """
    if (code := state.spec.variants) is None:
        return trial
    values = code.others(trial.params)
    return next(one for one in state.trials.values() if code.others(one.params) == values)


def seed_name(finalist: TrialState, number: int) -> str:
    """Return the seed name of a replicate; six digits keep it apart from trial names."""
    return f"final{number}/t{finalist.number + 1:06d}"


def stop_equal(trial: TrialState, first: TrialState, time: float) -> list[Event]:
    """Return the end of a further seed that repeats the first one; flat curves do not show it."""
    if len(trial.steps) < ALIKE or trial.intent is not None:
        return []
    differs = any(first.steps.get(step) != value for step, value in trial.steps.items())
    if differs or len({*trial.steps.values()}) < UNLIKE:
        return []
    return [decided(time, trial, "stop", NO_NOISE, SEEDLESS)]
