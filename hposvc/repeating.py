"""When the finalists are trained again, and what for: questions about a sweep's state.

The finals begin when the search has nothing left to run, and nobody ended the sweep. What is kept
of the budget for them, they may use; when all of it is used up, they end as they are.
"""

from collections.abc import Mapping, Sequence

from hposvc.ending import BROKEN, overran, spending
from hposvc.events import TIMEOUT, Closed, Cooled, Decided, Event, Order, Reported
from hposvc.repeat import Repeat
from hposvc.schedulers.scheduler import Over, Wait
from hposvc.state import SweepState
from hposvc.trial import TrialState


def due(state: SweepState) -> bool:
    """Whether there are finals once the search is over, or more of them."""
    finals, options = state.finals, state.spec.finalists
    if options is None or state.asked in ("stop", "kill") or state.resting:
        return False
    if finals.closed is not None or state.closed in BROKEN:
        return False
    return all(spent < limit for spent, limit in spending(state, state.now))


def step(state: SweepState) -> Order | Wait | Over:
    """What a free slot should do when the search is over."""
    wanted = [repeat for repeat in _wanted(state) if repeat.state == "PENDING"]
    ready = next((repeat for repeat in wanted if repeat.cooling is None), None)
    if ready is not None:
        return _order(state, ready)
    return Wait() if state.finals.out or wanted else Over()


def width(state: SweepState) -> int:
    """How many orders of repeats may be out at once from here on."""
    options = state.spec.finalists
    if options is None or not due(state):
        return len(state.finals.out)
    if not state.finals.begun:
        return options.top * options.seeds
    return state.finals.total - state.finals.done


def answer(state: SweepState, event: Reported) -> list[Event]:
    """What follows from a repeat's report: one that is not finite is its last."""
    repeat = state.finals.out[event.order]
    if not repeat.diverged or repeat.told:
        return []
    return [Decided(event.time, repeat.trial, event.order, event.step, "stop", "diverged")]


def expire(state: SweepState, now: float) -> list[Event]:
    """What is due by `now`: the budget, who does not heed, or ran too long, the next tries."""
    return [
        *_spend(state, now),
        *_enforce(state, now),
        *_overrun(state, now),
        *_cool(state, now),
    ]


def _wanted(state: SweepState) -> list[Repeat]:
    """All repeats that there are to be: first repeats first, and among them the best trial's."""
    options, finals = state.spec.finalists, state.finals
    if options is None or not due(state):
        return []
    rows: Mapping[str, Sequence[Repeat]] = finals.repeats
    if not finals.begun:
        rows = finals.lineup(state.leaders(options.top), options.seeds)
    return [repeat for column in zip(*rows.values(), strict=True) for repeat in column]


def _order(state: SweepState, repeat: Repeat) -> Order:
    """The order that carries a repeat on from its newest checkpoint."""
    trial, start = state.trials[repeat.trial], repeat.newest
    return Order(
        id=state.next_order,
        trial=trial.id,
        params=trial.shown,
        start=start,
        first=1 if start is None else start.step + 1,
        until=state.spec.last_step,
        seed_of=seed_name(trial, repeat.number),
        shrink=trial.shrink + repeat.failures.get("oversize", 0),
        repeat=repeat.number,
    )


def seed_name(trial: TrialState, repeat: int) -> str:
    """Whose random numbers a repeat draws: those of no trial, which are told by their digits."""
    return f"final{repeat}/t{trial.number + 1:06d}"


def _spend(state: SweepState, now: float) -> list[Event]:
    """The end of finals that have used the whole budget up."""
    finals = state.finals
    if not finals.begun or finals.closed is not None or not any(map(_open, finals.all())):
        return []
    if all(spent < limit for spent, limit in spending(state, now)):
        return []
    return [Closed(now, "budget"), *finals.words(now, "stop", "budget")]


def _open(repeat: Repeat) -> bool:
    return repeat.state in ("PENDING", "RUNNING")


def _enforce(state: SweepState, now: float) -> list[Event]:
    grace_s = state.spec.failure.grace
    return [
        Decided(now, repeat.trial, number, repeat.step, "kill", repeat.told)
        for number, repeat in state.finals.out.items()
        if repeat.told and not repeat.killed and now - repeat.told_at > grace_s
    ]


def _overrun(state: SweepState, now: float) -> list[Event]:
    """The end of repeats that have run for longer than a trial may."""
    most = state.spec.failure.timeout
    if most is None:
        return []
    return [
        Decided(now, one.trial, number, one.step, "kill", TIMEOUT, overran(one.ran_s(now), most))
        for number, one in state.finals.out.items()
        if not one.told and not one.diverged and one.ran_s(now) > most
    ]


def _cool(state: SweepState, now: float) -> list[Event]:
    due = [one for one in state.finals.all() if one.cooling is not None and one.cooling <= now]
    return [Cooled(now, name) for name in dict.fromkeys(repeat.trial for repeat in due)]
