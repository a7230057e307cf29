"""Stopping rules of a sweep: targets, budgets, a plateau, too many failures, requests.

All are functions of the state alone, at constant cost but for `check_worth`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hposvc.events import (
    PATIENT,
    TIMEOUT,
    Closed,
    Decided,
    End,
    Event,
    Failed,
    Finished,
    Reported,
    StorageExhausted,
    Suspended,
    TrialAction,
    error_line,
)
from hposvc.spec.metrics import Limit, Metric
from hposvc.state.prospects import next_trials, pace_of, prospect
from hposvc.state.sweep import SweepState
from hposvc.state.trial import END, TrialState
from hposvc.text import number

DISK_FULL = "disk full"
NO_CHECKPOINT = "no checkpoint"  # why a trial ended that others may copy, or that has to go on
ALIKE = 3  # this many trials that fail alike before any trial has reported end a sweep
BROKEN: tuple[End, ...] = ("user", "failures")  # ends after which there are no replicates


def decided(
    time: float, trial: TrialState, verdict: TrialAction, reason: str, detail: str = ""
) -> Decided:
    """Return a decision on a trial, with its order and step as they are now."""
    order = None if trial.order is None else trial.order.id
    step = trial.step if trial.awaiting is None else trial.awaiting
    return Decided(time, trial.shown_as, order, step, verdict, reason, detail)


def halt(
    state: SweepState, time: float, reason: End, verdict: TrialAction = "stop", detail: str = ""
) -> list[Event]:
    """Return the end of the search and of its orders; of the replicates too if it is broken."""
    trials = state.running() if reason in BROKEN else state.searching()
    return [Closed(time, reason, detail), *stop_running(trials, time, reason, verdict)]


def stop_running(
    trials: Iterable[TrialState], time: float, reason: End, verdict: TrialAction = "stop"
) -> list[Event]:
    """Return the ends of running trials because of the whole sweep."""
    return [
        replace(decided(time, trial, verdict, reason), whole=True)
        for trial in trials
        if not trial.intends("stop") or verdict == "kill"
    ]


def suspend_all(state: SweepState, time: float, reason: str) -> list[Event]:
    """Return the suspension of all running orders; they continue when the sweep does."""
    running = (trial for trial in state.running() if not trial.intends("stop"))
    return [decided(time, trial, "park", reason) for trial in running]


def check_disk(state: SweepState, event: Failed) -> list[Event]:
    """Return the event of a full disk, if that is why the order failed."""
    ended = state.halted and not state.replicates.begun
    if event.cause != "storage" or state.full or ended:
        return []
    lines = event.message.strip().splitlines() or ["no room to write"]
    return [StorageExhausted(event.time, lines[-1])]


def check_target(state: SweepState, trial: TrialState, time: float) -> list[Event]:
    """Return the end of the sweep if a trial meets every target.

    The value of a trial that has not come to its end may still become worse, unless it is the best
    of its steps: where losses rise with the step, every trial meets a target at first.
    """
    if state.halted or not trial.meets_targets:
        return []
    at_end = trial.at_end or trial.came_to(state.spec.last_step)
    if not at_end and state.spec.objectives[0].select != "best":
        return []
    seeds = state.spec.trials.seeds
    if seeds is not None and trial.place < END + seeds.max and not state.noiseless:
        return []  # one seed may meet it by luck
    return halt(state, time, "target")


def check_failures(state: SweepState, time: float) -> list[Event]:
    """Return the end of a sweep with too many failures."""
    if state.halted:
        return []
    stop = state.spec.stop
    alike = state.trials.most_same_error >= ALIKE and stop.max_failed is None
    if alike or state.trials.lacks_metric:
        return halt(state, time, "failures")
    if stop.max_failed is not None:
        ended = sum(
            state.trials.counts.get(phase, 0) for phase in ("COMPLETED", "STOPPED", "FAILED")
        )
        failed = state.trials.counts.get("FAILED", 0)
        if ended >= stop.max_failed.after and failed >= stop.max_failed.share * ended:
            return halt(state, time, "failures")
    return []


def lacks_checkpoints(state: SweepState) -> bool:
    """Return whether no trial has written a checkpoint: the trainable writes none."""
    return not any(trial.checkpoints for trial in state.trials.values())


def check_plateau(state: SweepState, time: float) -> list[Event]:
    """Return the end of proposals, if enough trials have ended since the best improved."""
    plateau = state.spec.stop.plateau
    if plateau is None or state.closed is not None or state.trials.plateau.since < plateau.trials:
        return []
    return [Closed(time, "plateau")]


def check_worth(state: SweepState, time: float) -> list[Event]:
    """Return the end of proposals, if more trials promise to gain less than `stop.worth` asks."""
    worth, spec = state.spec.stop.worth, state.spec
    if worth is None or state.closed is not None:
        return []
    ended = [trial for trial in state.trials.values() if trial.over]
    losses = [trial.loss if trial.at_end else math.inf for trial in ended]
    plan = prospect(losses, next_trials(len(ended)), pace_of(spec.search))
    if plan is None:
        return []
    hours = plan.trials * sum(trial.rank_s for trial in ended) / len(ended) / 3600
    amount, cost, unit = float(worth.trials or 0), float(plan.trials), ""
    if worth.gpu_hours is not None:
        amount, cost, unit = worth.gpu_hours, hours * spec.resources.gpus_per_worker, "GPU-hours"
    elif worth.cpu_hours is not None:
        amount, cost, unit = worth.cpu_hours, hours * spec.resources.cpus_per_worker, "CPU-hours"
    elif worth.energy_kwh is not None:
        used = sum(trial.energy_kwh or 0.0 for trial in ended)
        amount, cost, unit = worth.energy_kwh, plan.trials * used / len(ended), "kWh"
    if plan.gain.value and plan.gain.value * amount >= worth.gain * cost:
        return []
    price = f" for {number(cost, 2)} {unit}" if unit else ""
    wanted = f"{worth.gain:g} for {amount:g} {unit or 'trials'}"
    detail = (
        f"{plan.trials} more trials are expected to gain {number(plan.gain.value, 2)} in "
        f"{spec.objectives[0].name}{price}; stop.worth asks for {wanted}"
    )
    return [Closed(time, "worth", detail)]


def check_timeouts(state: SweepState, now: float) -> list[Event]:
    """Return the kills of trials that have run longer than `failure.timeout`."""
    most = state.spec.failure.timeout
    if most is None:
        return []
    return [
        decided(now, trial, "kill", TIMEOUT, overran(trial.ran_s(now), most))
        for trial in state.running()
        if trial.ran_s(now) > most
        if not trial.diverged and (trial.intent is None or trial.intent.reason in PATIENT)
    ]


def overran(ran_s: float, most: float) -> str:
    """Return the message about an order that ran too long."""
    return f"it had run for {ran_s:.1f} s, and failure.timeout is {most:g} s"


def check_budget(state: SweepState, now: float) -> list[Event]:
    """Return the end of a sweep that has used up its budget, the replicates' reserve aside."""
    if state.halted or state.started is None or state.replicates.begun:
        return []
    kept = state.spec.budget.reserve or 0.0
    for key, (spent, limit) in spending(state, now).items():
        if spent >= limit * (1 - kept):
            return halt(state, now, "budget", detail=f"budget.{key} is used up")
    return []


def spending(state: SweepState, now: float) -> dict[str, tuple[float, float]]:
    """Return what was spent and the limit, for each limit of the budget; see `spec.spending`."""
    now = max(now, state.now)
    wall_s = state.elapsed_s + now - state.now
    return state.spec.spending(wall_s, state.rank_s_at(now), state.energy_kwh)


def suspend(state: SweepState, now: float) -> Suspended:
    """Return the last event of a driver that releases a sweep to be resumed."""
    return Suspended(now) if state.asked == "pause" else Suspended(now, DISK_FULL)


def finish(state: SweepState, now: float) -> Finished:
    """Return the last event of a sweep that has nothing left to do."""
    if state.asked is not None:
        return Finished(now, "STOPPED", "user")
    if state.closed == "failures":
        return Finished(now, "FAILED", _first_failure(state))
    if not state.front:
        beyond = any(trial.values and not trial.kept for trial in state.trials.values())
        reason = "no trial keeps the limits" if beyond else _no_value(state)
        return Finished(now, "FAILED", reason)
    return Finished(now, "COMPLETED", state.replicates.closed or state.closed or "")


def _first_failure(state: SweepState) -> str:
    """Describe how many trials failed, and the first failure."""
    failed = [trial for trial in state.trials.values() if trial.state == "FAILED"]
    stuck = (trial for trial in state.trials.values() if trial.reason == NO_CHECKPOINT)
    if not failed and (trial := next(stuck, None)) is not None:
        return f"no trial can go on, as none has written a checkpoint; {_what(trial)}"
    crashed = [trial for trial in state.trials.values() if trial.failures and trial.message]
    how, those = ("failed", failed) if failed else ("crashed", crashed)
    before = "" if state.trials.reported else " before any reported"
    of = f"{len(those)} of {len(state.trials)} trials {how}{before}"
    return f"{of}; the first was {_what(those[0])}"


def _no_value(state: SweepState) -> str:
    """Describe why no trial has a value: how many diverged or failed, and the first of them."""
    trials = list(state.trials.values())
    if not trials and state.closed == "space":
        why = "the earlier sweeps have tried every configuration" if state.earlier else ""
        return f"no trial ran: {why or f'search.method {state.spec.search.name} proposed none'}"
    excluded = [trial for trial in trials if trial.excluded]
    counted = [trial for trial in trials if not trial.excluded]
    diverged = [trial for trial in counted if trial.diverged and trial.state != "FAILED"]
    failed = [trial for trial in counted if trial.state == "FAILED"]
    parts = [
        f"{len(those)} of {len(trials)} {what}, the first was {_what(those[0])}"
        for what, those in (("diverged", diverged), ("failed", failed), ("excluded", excluded))
        if those
    ]
    return "; ".join(["no trial has a value", *parts])


def _what(trial: TrialState) -> str:
    """Return the trial and why it is over."""
    reason, message = trial.end_reason
    return f"{trial.id}: {error_line(message) or reason}"


def limits_broken(limits: Sequence[Limit], event: Reported, unit: str) -> str:
    """Return which limits a report breaks: `p99_ms <= 200 is broken at load 3: it is 310`."""
    values = {name: number(value) for name, value in event.metrics.items()}
    said = [f"it is {values.get(limit.metric, 'not reported')}" for limit in limits]
    where = f"is broken at {unit} {event.step}"
    return "; ".join(f"{limit} {where}: {what}" for limit, what in zip(limits, said, strict=True))


def not_finite(metrics: Mapping[str, float], objectives: Sequence[Metric], step: int) -> str:
    """Return which metrics of a report are not finite: `loss is NaN at step 3`."""
    values = [(metric.name, metrics.get(metric.name, math.nan)) for metric in objectives]
    names = [
        f"{name} is {'NaN' if math.isnan(value) else f'{value:+}'}"
        for name, value in values
        if not math.isfinite(value)
    ]
    return f"{', '.join(names)} at step {step}"
