"""Estimate what early stopping saved: the cost of the steps that stopped trials did not train.

A stopped trial would have gone on at the pace it had, times a factor: steps may become slower or
faster, and the start of a trial costs time of its own. The factor is measured on trials that passed
the same step and came to the end, so the forecast is as uncertain as those few make it.
Source: for the interval, Efron & Tibshirani, An Introduction to the Bootstrap (1993), §13.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hposvc.analysis.audit.trial_audit import SOLO_REASONS
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

RESAMPLES = 400
CONFIDENCE = 0.8

Costs = Sequence[tuple[int, float]]  # (step, rank-seconds of the trial up to it)


@dataclass(frozen=True)
class Savings:
    """The forecast of what stopped trials would have cost beyond what they did."""

    completed: int  # trials that came to the end
    stopped: int  # trials that the scheduler stopped
    rank_s: float
    low_rank_s: float | None  # of the interval; None: fewer than two trials came to the end
    high_rank_s: float | None
    by_step: Mapping[int, tuple[int, float]]  # trials stopped at a step, and what that saved


def savings(state: SweepState) -> Savings | None:
    """Return what early stopping saved; None: no last step, or no trial was stopped early."""
    last = state.spec.last_step
    trials = [trial for trial in state.trials.values() if trial.costs]
    if last is None:
        return None
    completed = [trial.costs for trial in trials if trial.completed(last)]
    stopped = [trial.costs for trial in trials if cut(trial, last)]
    return forecast(completed, stopped, last) if stopped else None


def cut(trial: TrialState, last: int) -> bool:
    """Return whether the scheduler stopped a trial before its last step."""
    return trial.state == "STOPPED" and trial.reason not in SOLO_REASONS and trial.step < last


def forecast(completed: Sequence[Costs], stopped: Sequence[Costs], last: int) -> Savings:
    """Return what stopped trials would have cost up to the step `last`, with an interval of 80 %.

    Args:
        completed: the costs of trials that came to the step `last`.
        stopped: the costs of trials that were stopped before.
        last: the last step of a trial.

    Axes: S stopped trials, M those stopped at one step, R resamples, C completed trials.
    """
    steps_S = np.array([costs[-1][0] for costs in stopped], dtype=float)
    so_far_S = np.array([costs[-1][1] for costs in stopped], dtype=float)
    same_pace_S = so_far_S / steps_S * (last - steps_S)
    rng = np.random.default_rng(0)
    chosen_RC = (
        rng.integers(len(completed), size=(RESAMPLES, len(completed))) if completed else None
    )
    total_R = np.zeros(RESAMPLES)
    by_step: dict[int, tuple[int, float]] = {}
    for step in sorted({int(step) for step in steps_S}):
        pace_M = same_pace_S[steps_S == step]
        factors_C = np.array(_factors(completed, step, last))
        mean = float(factors_C.mean()) if len(factors_C) else 1.0
        by_step[step] = len(pace_M), mean * float(pace_M.sum())
        if chosen_RC is not None and len(factors_C):
            mean_R = factors_C[chosen_RC % len(factors_C)].mean(axis=1)
            # Each trial has a factor of its own, too.
            own = float(factors_C.std() * np.sqrt((pace_M**2).sum()))
            total_R += mean_R * pace_M.sum() + own * rng.standard_normal(RESAMPLES)
    tail = 50 * (1 - CONFIDENCE)
    low, high = (max(0.0, float(end)) for end in np.percentile(total_R, (tail, 100 - tail)))
    known = len(completed) >= 2
    return Savings(
        completed=len(completed),
        stopped=len(stopped),
        rank_s=sum(saved for _, saved in by_step.values()),
        low_rank_s=low if known else None,
        high_rank_s=high if known else None,
        by_step=by_step,
    )


def _factors(completed: Sequence[Costs], step: int, last: int) -> list[float]:
    """Return, by completed trial, its cost after a step, by what its pace until there promised."""
    factors = []
    for costs in completed:
        passed = [cost for at, cost in costs if at <= step]
        if passed and passed[-1] > 0 and last > step:
            promised = passed[-1] / step * (last - step)
            factors.append((costs[-1][1] - passed[-1]) / promised)
    return factors
