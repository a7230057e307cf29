"""Estimate what early stopping saved, and which stopped trials might have become the best.

A stopped trial would have gone on at the pace it had, times a factor: steps may become slower or
faster, and the start of a trial costs time of its own. The factor is measured on trials that passed
the same step and came to the end, so the forecast is as uncertain as those few make it. Its loss
would have ended on a straight line through theirs, at its step and at the end.

Axes: C completed trials, S stopped trials.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from hposvc.analysis.audit.trial_audit import SOLO_REASONS
from hposvc.analysis.judgement import HUGE, Array
from hposvc.estimate import Estimate
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

FEWEST = 4  # completed trials from which a loss is forecast

Costs = Sequence[tuple[int, float]]  # (step, rank-seconds of the trial up to it)


@dataclass(frozen=True)
class Savings:
    """The forecast of what stopped trials would have cost beyond what they did."""

    completed: int  # trials that came to the end
    stopped: int  # trials that the scheduler stopped
    rank_s: Estimate  # its interval is unknown if fewer than two trials came to the end
    by_step: Mapping[int, tuple[int, float]]  # trials stopped at a step, and what that saved


def savings(state: SweepState) -> Savings | None:
    """Return what early stopping saved; None: no last step, or no trial was stopped early."""
    last = state.spec.last_step
    if last is None:
        return None
    trials = [trial for trial in state.trials.values() if trial.costs]
    completed = [trial.costs for trial in trials if trial.completed(last)]
    stopped = [trial.costs for trial in trials if _stopped_early(trial, last)]
    return forecast(completed, stopped, last) if stopped else None


def forecast(completed: Sequence[Costs], stopped: Sequence[Costs], last: int) -> Savings:
    """Return what stopped trials would have cost up to the step `last`, with an interval.

    Args:
        completed: the costs of trials that came to the step `last`.
        stopped: the costs of trials that were stopped before.
    """
    promised: dict[int, list[float]] = defaultdict(list)  # costs at the trials' own pace
    for costs in stopped:
        step, so_far = costs[-1]
        promised[step].append(so_far / step * (last - step))
    # What all would have cost at the factors of each completed trial, and the variance that comes
    # from each stopped trial having a factor of its own, too.
    total_C, own = np.zeros(len(completed)), 0.0
    by_step = {}
    for step, costs_M in sorted(promised.items()):
        factor_C = np.array([_factor(costs, step, last) for costs in completed])
        known_C = factor_C[np.isfinite(factor_C)]
        factor = float(known_C.mean()) if len(known_C) else 1.0
        total_C += sum(costs_M) * np.where(np.isfinite(factor_C), factor_C, factor)
        own += float(known_C.var() * np.square(costs_M).sum()) if len(known_C) else 0.0
        by_step[step] = len(costs_M), factor * sum(costs_M)
    saved = Estimate(sum(saved for _, saved in by_step.values()))
    if (count := len(completed)) >= 2:
        error = math.sqrt(float(total_C.var(ddof=1)) / count + own)
        saved = Estimate.of_mean(saved.value, error, count - 1)
        saved = saved.map(lambda rank_s: max(0.0, rank_s))
    return Savings(count, len(stopped), saved, by_step)


def _factor(costs: Costs, step: int, last: int) -> float:
    """Return a completed trial's cost after a step, by what its pace until there promised."""
    passed = [cost for at, cost in costs if at <= step]
    if not passed or passed[-1] <= 0 or last <= step:
        return math.nan
    return (costs[-1][1] - passed[-1]) / (passed[-1] / step * (last - step))


def chances_of_stopped(state: SweepState) -> dict[str, float]:
    """Return the probability that each stopped trial would have beaten the best, where known."""
    last = state.spec.last_step
    if last is None:
        return {}
    ended = [trial for trial in state.trials.values() if trial.completed(last)]
    finals = [(trial.steps, trial.loss) for trial in ended if abs(trial.loss) < HUGE]
    stopped: dict[int, dict[str, float]] = defaultdict(dict)  # losses by step
    for trial in state.trials.values():
        value = trial.steps.get(trial.step, math.nan)
        counts = trial.step > 0 and abs(value) < HUGE and not trial.excluded
        if counts and _stopped_early(trial, last):
            stopped[trial.step][trial.id] = trial.metric.loss(value)
    chances: dict[str, float] = {}
    for step, losses in stopped.items():
        loss = state.spec.objectives[0].loss
        pairs = [(loss(steps[step]), end) for steps, end in finals if step in steps]
        pairs = [pair for pair in pairs if abs(pair[0]) < HUGE]
        if len(pairs) >= FEWEST:
            found_S = _beating(np.array([*losses.values()]), *np.array(pairs).T)
            chances |= dict(zip(losses, map(float, found_S), strict=True))
    return chances


def _beating(here_S: Array, x_C: Array, y_C: Array) -> Array:
    """Return the probabilities that trials end below the lowest of all ends.

    Args:
        here_S: losses of the trials at a step.
        x_C: losses of completed trials at that step.
        y_C: their losses at the end.
    """
    away_C, freedom = x_C - x_C.mean(), len(x_C) - 2
    spread = float(away_C @ away_C) or 1.0
    slope = max(0.0, float(away_C @ y_C) / spread)
    lead_S = y_C.min() - y_C.mean() - slope * (here_S - x_C.mean())
    rest_C = y_C - y_C.mean() - slope * away_C
    width_S = math.sqrt(float(rest_C @ rest_C) / freedom) * np.sqrt(
        1 + 1 / len(x_C) + (here_S - x_C.mean()) ** 2 / spread
    )
    if not width_S.all():
        return np.asarray(lead_S > 0, dtype=float)
    return np.asarray(stdtr(freedom, lead_S / width_S))


def _stopped_early(trial: TrialState, last: int) -> bool:
    """Return whether the scheduler stopped a trial before its last step."""
    return trial.state == "STOPPED" and trial.reason not in SOLO_REASONS and trial.step < last
