"""When a sweep ends, and how: targets, budgets, a plateau, too many failures, people's words.

Functions of the state alone, at constant cost.
"""

import math
from collections.abc import Iterator
from itertools import compress

from hposvc.events import (
    TIMEOUT,
    WIDER,
    Closed,
    Decided,
    End,
    Event,
    Failed,
    Finished,
    Full,
    Rested,
    Verdict,
)
from hposvc.state import SweepState
from hposvc.trial import TrialState

DISK_FULL = "disk full"
BROKEN: tuple[End, ...] = ("user", "failures")  # ends after which there are no finals


def decided(
    time: float, trial: TrialState, verdict: Verdict, reason: str, detail: str = ""
) -> Decided:
    """The word to a trial, wherever it stands."""
    order = None if trial.order is None else trial.order.id
    step = trial.step if trial.awaiting is None else trial.awaiting
    return Decided(time, trial.id, order, step, verdict, reason, detail)


def halt(state: SweepState, time: float, reason: End, verdict: Verdict = "stop") -> list[Event]:
    """The end of the sweep, and of all that runs."""
    stops = [
        Decided(time, one.trial, one.order, one.step, verdict, reason, whole=True)
        for trial in state.live()
        if trial.stop is None or verdict == "kill"
        for one in [decided(time, trial, verdict, reason)]
    ]
    repeats = state.finals.words(time, verdict, reason) if reason in BROKEN else ()
    return [Closed(time, reason), *stops, *repeats]


def park(state: SweepState, time: float, reason: str) -> list[Event]:
    """The end of what runs, for a while: all of it goes on once the sweep does."""
    running = (trial for trial in state.live() if trial.stop is None)
    parked = [decided(time, trial, "park", reason) for trial in running]
    return [*parked, *state.finals.words(time, "park", reason)]


def fill(state: SweepState, event: Failed) -> list[Event]:
    """What an order that found no room to write says of the whole sweep."""
    ended = state.halted and not state.finals.begun
    if event.cause != "storage" or state.full or ended:
        return []
    lines = event.message.strip().splitlines() or ["no room to write"]
    return [Full(event.time, lines[-1])]


def reach(state: SweepState, trial: TrialState, time: float) -> list[Event]:
    """The end of the sweep, if a trial meets every target that there is."""
    objectives = state.spec.objectives
    targets = [metric.target is not None for metric in objectives]
    if state.halted or not any(targets) or not math.isfinite(trial.loss):
        return []
    found = compress(zip(objectives, trial.values, strict=True), targets)
    reached = all(metric.reached(value) for metric, value in found)
    return halt(state, time, "target") if reached else []


def despair(state: SweepState, time: float) -> list[Event]:
    """The end of a sweep that is broken, or of the proposing of one that has come to rest."""
    stop = state.spec.stop
    if stop.max_failed is not None and not state.halted:
        ended = sum(state.counts.get(phase, 0) for phase in ("COMPLETED", "STOPPED", "FAILED"))
        failed = state.counts.get("FAILED", 0)
        if ended >= stop.max_failed.after and failed >= stop.max_failed.share * ended:
            return halt(state, time, "failures")
    most = None if stop.plateau is None else stop.plateau.trials
    rests = most is not None and state.gains.since >= most and state.closed is None
    return [Closed(time, "plateau")] if rests else []


def overrun(state: SweepState, now: float) -> list[Event]:
    """The end of trials that have run for longer than one may."""
    most = state.spec.failure.timeout
    if most is None:
        return []
    return [
        decided(now, trial, "kill", TIMEOUT, overran(trial.ran_s(now), most))
        for trial in state.live()
        if trial.ran_s(now) > most
        if trial.stop is None and not (trial.yields or trial.diverged)
        if trial.parked in ("", WIDER)
    ]


def overran(ran_s: float, most: float) -> str:
    """What is said of what ran for too long."""
    return f"it had run for {ran_s:.1f} s, and failure.timeout is {most:g} s"


def spend(state: SweepState, now: float) -> list[Event]:
    """The end of a sweep that has used its budget up, but for what is kept for its finalists."""
    if state.halted or state.started is None or state.finals.begun:
        return []
    kept = state.spec.budget.reserve or 0.0
    over = any(spent >= limit * (1 - kept) for spent, limit in spending(state, now))
    return halt(state, now, "budget") if over else []


def spending(state: SweepState, now: float) -> Iterator[tuple[float, float]]:
    """What is spent and what the limit is, of each limit of the budget; in seconds, and hours."""
    budget, resources = state.spec.budget, state.spec.resources
    now = max(now, state.now)
    hours = state.rank_s_at(now) / 3600
    if budget.wall is not None:
        yield state.elapsed_s + now - state.now, budget.wall
    if budget.gpu_hours is not None:
        yield hours * resources.gpus_per_worker, budget.gpu_hours
    if budget.cpu_hours is not None:
        yield hours * resources.cpus_per_worker, budget.cpu_hours


def rest(state: SweepState, now: float) -> Rested:
    """The last event of a driver that lets go of a sweep which is to go on."""
    return Rested(now) if state.asked == "pause" else Rested(now, DISK_FULL)


def finish(state: SweepState, now: float) -> Finished:
    """The last event of a sweep that has nothing left to do."""
    if state.asked is not None:
        return Finished(now, "STOPPED", "user")
    if state.closed == "failures":
        return Finished(now, "FAILED", _first_failure(state))
    if not state.front:
        beyond = any(trial.values and not trial.kept for trial in state.trials.values())
        reason = "no trial keeps the limits" if beyond else "no trial has a value"
        return Finished(now, "FAILED", reason)
    return Finished(now, "COMPLETED", state.finals.closed or state.closed or "")


def _first_failure(state: SweepState) -> str:
    """How many failed, and what the first of them said."""
    failed = [trial for trial in state.trials.values() if trial.state == "FAILED"]
    lines = failed[0].message.strip().splitlines() or [failed[0].reason]
    of = f"{len(failed)} of {len(state.trials)} trials failed"
    return f"{of}; the first was {failed[0].id}: {lines[-1]}"
