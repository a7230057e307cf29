"""Estimate the worth of the next trials: how far they may improve on the best value.

New trials are taken to be like those of late: some come near the best, and how far beyond it they
reach follows the tail of the best values. Source: for the tail, the generalized Pareto distribution
of excesses, Coles, An Introduction to Statistical Modeling of Extreme Values (2001), chapter 4.

Axes: H shapes, W widths, D draws.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.8  # of the interval
FEWEST = 8  # trials from which anything is forecast
SHAPES = np.linspace(-0.9, 0.4, 27)  # negative: values have an end
WIDTHS = np.exp(np.linspace(math.log(0.2), math.log(8), 41))  # in mean excesses
DRAWS = 4000


@dataclass(frozen=True)
class Prospect:
    """The forecast of what more trials gain over the best value."""

    trials: int
    gain: float  # mean
    low: float
    high: float
    chance: float  # probability of any gain


def prospect(losses: Sequence[float], more: int, adaptive: bool) -> Prospect | None:
    """Forecast the gain of more trials; None: too few trials have a value.

    Args:
        losses: of the trials in the order proposed; infinite: without a comparable value.
        more: how many trials are to come.
        adaptive: whether the searcher learns, so that only the later half is like what comes.
    """
    best = min(losses, default=math.inf)
    recent = np.array(losses[-max(2 * FEWEST, len(losses) // 2) :] if adaptive else losses)
    known = np.sort(recent[np.isfinite(recent)])
    if len(known) < FEWEST or not math.isfinite(best):
        return None
    tail = int(np.clip(len(known) // 3, 5, 40))
    excess = known[tail] - known[:tail]  # how far the best lie beyond the next
    mean = float(excess.mean())
    lead = max(known[tail] - best, 0.0)
    if mean <= 1e-12 * max(abs(best), abs(known[tail]), 1e-300):
        return Prospect(more, 0.0, 0.0, 0.0, 0.0)
    rng = np.random.default_rng(0)
    shape_D, width_D = _tails(excess / mean, rng)
    share_D = rng.beta(tail + 0.5, len(recent) - tail + 0.5, DRAWS)
    reach_D = rng.binomial(more, share_D)
    luck_D = rng.random(DRAWS) ** (1 / np.maximum(reach_D, 1))
    flat_D = np.where(np.abs(shape_D) < 1e-9, 1e-9, shape_D)
    beyond_D = width_D / flat_D * (np.maximum(1 - luck_D, 1e-16) ** -flat_D - 1) * mean
    gain_D = np.where(reach_D > 0, np.maximum(beyond_D - lead, 0.0), 0.0)
    low, high = np.quantile(gain_D, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Prospect(more, float(gain_D.mean()), float(low), float(high), float((gain_D > 0).mean()))


def _tails(excess: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of shape and width of the tail, given excesses with a mean of 1.

    The prior expects values that have an end, as losses near an optimum do.
    """
    shape_H1, width_1W = SHAPES[:, None], WIDTHS[None, :]
    shape_H1 = np.where(np.abs(shape_H1) < 1e-9, 1e-9, shape_H1)
    inside_HWE = 1 + shape_H1[..., None] * excess / width_1W[..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        log_HW = -(1 / shape_H1 + 1) * np.log(np.maximum(inside_HWE, 0)).sum(-1)
    log_HW = log_HW - len(excess) * np.log(width_1W) - 0.5 * ((shape_H1 + 0.25) / 0.25) ** 2
    log_HW -= 0.5 * (np.log(width_1W) / 0.7) ** 2
    log_HW = np.where((inside_HWE > 0).all(-1), log_HW, -np.inf)
    weight = np.exp(log_HW - log_HW.max()).ravel()
    chosen_D = rng.choice(weight.size, DRAWS, p=weight / weight.sum())
    return shape_H1.ravel()[chosen_D // len(WIDTHS)], WIDTHS[chosen_D % len(WIDTHS)]
