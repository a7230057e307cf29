"""Replicates: when the best trials are trained again with other random numbers.

Replicates begin when the search has nothing left to run and nobody ended the sweep. They may use
the reserve of the budget; when all of the budget is used up, those that run are ended.
"""

from collections.abc import Mapping, Sequence

from hposvc.controller.stopping import BROKEN, not_finite, overran, spending
from hposvc.events import TIMEOUT, Closed, Decided, Event, Reported, RetryDue
from hposvc.schedulers.scheduler import SearchDone, Wait
from hposvc.state.replicate import Replicate
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from trainables.order import Order


def due(state: SweepState) -> bool:
    """Return whether replicates are to run once the search is over."""
    finals, options = state.replicates, state.spec.finalists
    if options is None or state.asked in ("stop", "kill") or state.resting:
        return False
    if finals.closed is not None or state.closed in BROKEN:
        return False
    return all(spent < limit for spent, limit in spending(state, state.now))


def step(state: SweepState) -> Order | Wait | SearchDone:
    """Return the work for a free slot when the search is over."""
    wanted = [repeat for repeat in _wanted(state) if repeat.state == "PENDING"]
    ready = next((repeat for repeat in wanted if repeat.backing_off is None), None)
    if ready is not None:
        return _order(state, ready)
    return Wait() if state.replicates.out or wanted else SearchDone()


def width(state: SweepState) -> int:
    """Return how many orders of replicates can run at once from now on."""
    options = state.spec.finalists
    if options is None or not due(state):
        return len(state.replicates.out)
    if not state.replicates.begun:
        return options.top * options.seeds
    return state.replicates.total - state.replicates.done


def answer(state: SweepState, event: Reported) -> list[Event]:
    """Return what follows from a replicate's report: one that is not finite is its last."""
    repeat = state.replicates.out[event.order]
    if not repeat.diverged or repeat.told:
        return []
    what = not_finite(event.metrics, state.spec.objectives, event.step)
    return [Decided(event.time, repeat.trial, event.order, event.step, "stop", "diverged", what)]


def expire(state: SweepState, now: float) -> list[Event]:
    """Return the events due now: an exhausted budget, kills, timeouts, retries."""
    return [
        *_spend(state, now),
        *_enforce(state, now),
        *_overrun(state, now),
        *_cool(state, now),
    ]


def _wanted(state: SweepState) -> list[Replicate]:
    """Return all planned replicates: the first of each trial first, the best trial's leading."""
    options, finals = state.spec.finalists, state.replicates
    if options is None or not due(state):
        return []
    rows: Mapping[str, Sequence[Replicate]] = finals.repeats
    if not finals.begun:
        rows = finals.lineup(state.leaders(options.top), options.seeds)
    return [repeat for column in zip(*rows.values(), strict=True) for repeat in column]


def _order(state: SweepState, repeat: Replicate) -> Order:
    """Return the order that continues a replicate from its newest checkpoint."""
    trial, start = state.trials[repeat.trial], repeat.resume_point
    return Order(
        id=state.next_order,
        trial=trial.id,
        params=trial.reported_params,
        start=start,
        first=1 if start is None else start.step + 1,
        until=state.spec.last_step,
        seed_of=seed_name(trial, repeat.number),
        shrink=trial.shrink + repeat.failures.get("oversize", 0),
        repeat=repeat.number,
    )


def seed_name(trial: TrialState, repeat: int) -> str:
    """Return the seed name of a replicate; six digits keep it apart from trial names."""
    return f"final{repeat}/t{trial.number + 1:06d}"


def _spend(state: SweepState, now: float) -> list[Event]:
    """Return the end of replicates that have used up the whole budget."""
    finals = state.replicates
    if not finals.begun or finals.closed is not None or not any(map(_open, finals.all())):
        return []
    if all(spent < limit for spent, limit in spending(state, now)):
        return []
    return [Closed(now, "budget"), *finals.words(now, "stop", "budget")]


def _open(repeat: Replicate) -> bool:
    return repeat.state in ("PENDING", "RUNNING")


def _enforce(state: SweepState, now: float) -> list[Event]:
    grace_s = state.spec.failure.grace
    return [
        Decided(now, repeat.trial, number, repeat.step, "kill", repeat.told)
        for number, repeat in state.replicates.out.items()
        if repeat.told and not repeat.killed and now - repeat.told_at > grace_s
    ]


def _overrun(state: SweepState, now: float) -> list[Event]:
    """Return the kills of replicates that ran longer than a trial may."""
    most = state.spec.failure.timeout
    if most is None:
        return []
    return [
        Decided(
            now,
            repeat.trial,
            number,
            repeat.step,
            "kill",
            TIMEOUT,
            overran(repeat.ran_s(now), most),
        )
        for number, repeat in state.replicates.out.items()
        if not repeat.told and not repeat.diverged and repeat.ran_s(now) > most
    ]


def _cool(state: SweepState, now: float) -> list[Event]:
    due = [
        repeat
        for repeat in state.replicates.all()
        if repeat.backing_off is not None and repeat.backing_off <= now
    ]
    return [RetryDue(now, name) for name in dict.fromkeys(repeat.trial for repeat in due)]
