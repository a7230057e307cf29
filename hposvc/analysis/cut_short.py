"""Trials that were stopped early: what that saved, and which might have become the best.

The second is a forecast of a model: stopped trials would have risen as
the others did.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from hposvc.analysis.noise import HUGE
from hposvc.analysis.savings import Savings, cut, savings
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

FEWEST = 4  # completed trials from which a forecast is made


@dataclass(frozen=True)
class CutShort:
    """A forecast of what stopped trials would have cost and reached."""

    saved: Savings
    wrong: float | None  # expected number that would have beaten the best; None: not known
    suspect: str | None  # the likeliest of them
    chance: float  # that this one would have beaten the best


def cut_short(state: SweepState) -> CutShort | None:
    """Return the forecast; None: no trial was stopped early, or trials have no last step."""
    saved, last = savings(state), state.spec.last_step
    if saved is None or last is None:
        return None
    trials = [trial for trial in state.trials.values() if trial.step > 0]
    known = _chances(
        [trial for trial in trials if cut(trial, last)],
        [trial for trial in trials if trial.completed(last)],
    )
    suspect = max(known, key=lambda name: known[name], default=None)
    return CutShort(
        saved=saved,
        wrong=sum(known.values()) if known else None,
        suspect=suspect,
        chance=known[suspect] if suspect else 0.0,
    )


def _chances(stopped: Sequence[TrialState], completed: Sequence[TrialState]) -> dict[str, float]:
    """Return how probable it is that each stopped trial would have beaten the best; some: unknown.

    A straight line leads from the losses at the trial's step to those at the end.
    """
    loss = stopped[0].metric.loss
    finals = [(each.steps, each.loss) for each in completed if abs(each.loss) < HUGE]
    by_step: dict[int, list[TrialState]] = {}
    for trial in stopped:
        if abs(trial.steps.get(trial.step, math.nan)) < HUGE:
            by_step.setdefault(trial.step, []).append(trial)
    chances: dict[str, float] = {}
    for step, trials in by_step.items():
        pairs = [(loss(steps[step]), end) for steps, end in finals if step in steps]
        pairs = [pair for pair in pairs if abs(pair[0]) < HUGE]
        if len(pairs) >= FEWEST:
            here_S = np.array([loss(trial.steps[step]) for trial in trials])
            found = _beating(here_S, *np.array(pairs).T)
            chances |= dict(zip((trial.id for trial in trials), map(float, found), strict=True))
    return chances


def _beating(here_S: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the probabilities that trials end below the lowest of all ends.

    Args:
        here_S: losses of the trials at a step.
        x: losses of completed trials at that step.
        y: their losses at the end.
    """
    away_x, away_y = x - x.mean(), y - y.mean()
    spread = float((away_x**2).sum()) or 1.0
    slope = max(0.0, float((away_x * away_y).sum()) / spread)
    forecast_S = y.mean() + slope * (here_S - x.mean())
    freedom = len(x) - 2
    deviation = math.sqrt(float(((away_y - slope * away_x) ** 2).sum()) / freedom)
    width_S = deviation * np.sqrt(1 + 1 / len(x) + (here_S - x.mean()) ** 2 / spread)
    lead_S = y.min() - forecast_S
    if deviation == 0:
        return np.asarray(lead_S > 0, dtype=float)
    return np.asarray(stdtr(freedom, lead_S / width_S))
