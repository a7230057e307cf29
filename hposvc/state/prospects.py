"""Estimate the worth of the next trials: how far they may improve on the best value.

Improvements come at a rate in the logarithm of the number of trials: with values in random order a
trial is the best so far with a chance of one to its number, so the rate is 1. Searchers that learn
have higher rates, which a sweep's own improvements tell; a gamma distribution holds what is known
of the rate. How much is gained, if anything, follows a Weibull distribution; its unit, the lead, is
how far the best is ahead of the next eight on average. The constants (searchers/pace.py) are judged
on problems that they do not come from (benchmarks/prospects.py).

Sources: Rényi (1962) for the rate of records; Gelman et al., Bayesian Data Analysis (2013), section
2.6, for a gamma prior of a Poisson rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hposvc.estimate import CONFIDENCE, Estimate
from hposvc.spec.registry import SEARCHERS, PlugIn, attribute
from searchers import LEARNING, WITHOUT_RESULTS, Pace

FEWEST = 8  # trials from which anything is forecast
NEXT_BEST = 8  # trials that the best is compared with
QUANTILES = (np.arange(200) + 0.5) / 200
# A gain counts in the mean as this quantile at most: the few larger ones would double it.
LARGEST = 0.9


NEXT = 20  # trials whose gain is forecast, at least


def pace_of(search: PlugIn) -> Pace:
    """Return how a searcher improves: its own pace, else that of those that learn, or do not."""
    if isinstance(pace := attribute(SEARCHERS, search, "pace"), Pace):
        return pace
    return WITHOUT_RESULTS if attribute(SEARCHERS, search, "uses_results") is False else LEARNING


def next_trials(ended: int) -> int:
    """Return how many trials are forecast after so many: a fifth as many again."""
    return max(NEXT, ended // 5)


@dataclass(frozen=True)
class Prospect:
    """The forecast of what more trials gain over the best value."""

    trials: int
    gain: Estimate  # its mean, which the interval holds
    chance: float  # probability of any gain


def prospect(losses: Sequence[float], more: int, pace: Pace) -> Prospect | None:
    """Forecast the gain of more trials; None: too few trials have a value.

    Args:
        losses: of the trials in the order proposed; infinite: without a comparable value.
        more: how many trials are to come.
        pace: of the searcher.
    """
    known = np.sort([loss for loss in losses if math.isfinite(loss)])
    if len(known) < FEWEST:
        return None
    unit, room = lead(known), room_of(known)
    if unit <= 1e-12 * float(np.abs(known[: 1 + NEXT_BEST]).max()):
        return Prospect(more, Estimate(0.0, 0.0, 0.0), 0.0)
    chance = chance_of_gain(losses, more, pace)

    def size(share: np.ndarray) -> np.ndarray:
        """Return quantiles of the gain if there is any: no more than there is to gain."""
        widths: np.ndarray = (-np.log1p(-share)) ** (1.0 / pace.shape)
        gains: np.ndarray = np.minimum(unit * pace.width * widths, room)
        return gains

    # No gain is the most probable value; where it is likely, the shortest interval begins there.
    missed = (1.0 - CONFIDENCE) / 2.0
    is_sure = chance > 1.0 - missed
    levels = np.array([missed, 1.0 - missed] if is_sure else [0.0, CONFIDENCE])
    low, high = size(np.maximum(1.0 - (1.0 - levels) / chance, 0.0)).tolist()
    gain = chance * float(size(np.minimum(QUANTILES, LARGEST)).mean())
    # Few large gains may make a mean that is above what happens in nearly all cases.
    return Prospect(more, Estimate(gain, low, max(high, gain)), chance)


def room_of(known: np.ndarray) -> float:
    """Return the most that can be gained over sorted losses, if values keep their sign.

    Values that are maximized and lie from 0 to 1 are taken for shares, which end at 1.
    """
    best, worst = float(known[0]), float(known[-1])
    return best if best >= 0 else best + 1 if best >= -1 and worst <= 0 else math.inf


def lead(known: np.ndarray) -> float:
    """Return how far the first of sorted losses is ahead of the next; with ties, of all others."""
    ahead = float(known[1 : 1 + NEXT_BEST].mean() - known[0])
    return ahead or float(known.mean() - known[0])


def chance_of_gain(losses: Sequence[float], more: int, pace: Pace) -> float:
    """Return the probability that one of the next trials is better than all so far."""
    seen, exposure = recent_improvements(losses)
    improvements, exposure = pace.improvements + seen, pace.exposure + exposure
    to_come = math.log1p(more / len(losses))
    return float(1.0 - (exposure / (exposure + to_come)) ** improvements)


def recent_improvements(losses: Sequence[float]) -> tuple[int, float]:
    """Return how often the later half of the trials improved on the best, and the exposure."""
    half = len(losses) // 2
    best_T = np.minimum.accumulate(losses)
    improved_T = best_T[half:] < best_T[half - 1 : -1]
    return int(improved_T.sum()), math.log(len(losses) / half)
