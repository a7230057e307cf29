"""Draw possible truths about a sweep that has not run: times, failures, and how losses rank.

Each quantity that evidence does not settle is drawn: the typical time of a step and its spread
between configurations, the start of an order, failures, and how losses rank trials. The spreads of
what nobody measured are assumptions, which benchmarks/plans.py holds against simulated sweeps.

Source: for the mean and the spread of a logarithm, Gelman et al., Bayesian Data Analysis (3rd ed.,
2013), §3.3; for many observed trials, Rubin, The Bayesian bootstrap, Annals of Statistics 9 (1981).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import ndtri

from hposvc.analysis.forecast.evidence import Evidence
from hposvc.spec import SweepSpec, registry

Array = NDArray[np.float64]
MANY = 30  # trials from which their times are drawn as they are
SPREAD = 0.4  # typical standard deviation of the logarithm of a step's time between trials
SPREAD_WEIGHT = 2.0  # observations that the typical spread is worth
WIDEST = 1.2  # of such standard deviations
# Standard deviations of the logarithm of a step's typical time, beside what its trials show: from
# one sweep to the next on a machine; with other resources; of what a person states.
DRIFT, OTHER_SETUP, STATED = 0.12, 0.3, 0.2
START_DRIFT = 0.3  # of the starts of orders: they depend most on how busy a machine is
LONGER = 0.15  # likewise, of a pilot's first steps beside the whole of a trial
# Seconds that an order, and a sweep, take to begin where nothing was measured: typical and spread.
UNSEEN_ORDER_S, UNSEEN_START_S, UNSEEN_SPREAD = 1.0, 5.0, 1.0
RARE_LOSS = (0.5, 25.0)  # lost orders and orders, as if they had been seen
RARE_FAULT = (0.5, 25.0)  # trials that fail by their own fault, and trials
NOT_RELATED = 0.3  # typical correlation of a trial's time and its loss


@dataclass(frozen=True)
class World:
    """A draw of what may be true; times in seconds, losses in units of the spread of trials."""

    rng: Generator
    times_N: Array  # of a step, by configuration: the N configurations come again in turn
    speeds_N: Array  # their normal scores: 0 is the median, above it slower
    fall: float  # of losses per e-fold of steps
    noise: float  # of a report
    stays: float  # share of the variance between trials that holds from rung to rung
    gain: float  # of the last proposal over the first, by a searcher that learns
    speed_loss: float = 0.0  # correlation of a trial's time and its loss
    first_s: float = 0.0  # of the first order of a slot, beyond its steps
    later_s: float = 0.0  # of other orders, beyond their steps
    pause_s: float = 0.0
    start_s: float = 0.0
    close_s: float = 0.0
    lost: float = 0.0  # chance that an order is lost to a machine
    fails_at_once: float = 0.0  # chance that a trial fails at its first step
    fails_later: float = 0.0  # chance that it fails later, over the length of a trial
    unit: float = 1.0  # spread between trials, in the metric's unit


def draw(spec: SweepSpec, evidence: Evidence | None, rng: Generator) -> World:
    """Return a possible world; without evidence every step takes a second, and nothing fails."""
    learns = registry.trait(registry.SEARCHERS, spec.search, "uses_results")
    gain = float(rng.uniform(0, 1)) if learns else 0.0
    curves = None if evidence is None else evidence.curves
    if curves is None:
        fall, noise = math.exp(rng.normal(-0.5, 1.2)), float(rng.uniform(0.05, 0.6))
    else:
        width = math.sqrt(0.15**2 + 1.0 / curves.trials)
        fall = max(curves.fall, 0.0) * math.exp(rng.normal(0, width))
        noise = curves.noise * math.exp(rng.normal(0, width))
    stays = float(rng.uniform(0.4, 1.0))
    if evidence is None:
        return World(
            rng,
            times_N=np.ones(1),
            speeds_N=np.zeros(1),
            fall=fall,
            noise=noise,
            stays=stays,
            gain=gain,
        )
    times_N = _times(evidence, rng)
    ranks = np.argsort(np.argsort(times_N)) + 1
    order_s = _typical(evidence.later_s or evidence.first_s, UNSEEN_ORDER_S, rng)
    if evidence.first_s and not evidence.later_s:
        order_s *= float(rng.uniform(0.05, 1.0))  # a slot's first order is its slowest
    related = rng.normal(0, NOT_RELATED)
    if evidence.speed_pairs:
        weight = evidence.speed_pairs / (evidence.speed_pairs + 8)
        related = weight * evidence.speed_rank + rng.normal(0, 1 / math.sqrt(8 + evidence.trials))
    return World(
        rng,
        times_N=times_N,
        speeds_N=ndtri(ranks / (len(ranks) + 1)),
        speed_loss=float(np.clip(related, -0.9, 0.9)),
        first_s=_typical(evidence.first_s, UNSEEN_ORDER_S, rng),
        later_s=order_s,
        pause_s=_median(evidence.pauses_s, rng),
        start_s=_typical(evidence.start_s, UNSEEN_START_S, rng),
        close_s=_median(evidence.close_s, rng),
        lost=_chance(evidence.lost, evidence.orders, RARE_LOSS, rng),
        fails_at_once=_chance(evidence.failed_at_once, evidence.trials, RARE_FAULT, rng),
        fails_later=_later(spec, evidence, rng),
        fall=fall,
        noise=noise,
        stays=stays,
        gain=gain,
        unit=1.0 if curves is None else curves.spread,
    )


def _times(evidence: Evidence, rng: Generator) -> Array:
    """Return the times of a step of possible configurations."""
    logs_N = np.log(evidence.step_s)
    drift = {"pilot": LONGER, "earlier": DRIFT, "stated": STATED}[evidence.origin]
    drift = math.hypot(drift, OTHER_SETUP if evidence.other_setup else 0.0)
    shift = rng.normal(0, drift)
    if len(logs_N) >= MANY:
        weights_N = rng.dirichlet(np.ones(len(logs_N)))
        return np.exp(shift + rng.choice(logs_N, size=4 * len(logs_N), p=weights_N))
    count = len(logs_N)
    freedom = SPREAD_WEIGHT + count - 1
    squares = SPREAD_WEIGHT * SPREAD**2 + float(np.sum((logs_N - logs_N.mean()) ** 2))
    spread = min(math.sqrt(squares / rng.chisquare(freedom)), WIDEST)
    # A stated time is a mean, of which the drift says how sure it is.
    centre = logs_N.mean() + shift
    if evidence.origin != "stated":
        centre += rng.normal(0, spread / math.sqrt(count))
    else:
        centre -= spread**2 / 2
    return np.exp(rng.normal(centre, spread, size=256))


def _typical(values_s: Sequence[float], unseen_s: float, rng: Generator) -> float:
    """Return a possible mean of measured seconds; a guess around `unseen_s` if there are none."""
    if not values_s:
        return float(unseen_s * math.exp(rng.normal(0, UNSEEN_SPREAD)))
    mean_s = float(np.average(values_s, weights=rng.dirichlet(np.ones(len(values_s)))))
    return max(mean_s * math.exp(rng.normal(0, START_DRIFT + 0.25 / math.sqrt(len(values_s)))), 0.0)


def _median(values_s: Sequence[float], rng: Generator) -> float:
    """Return the median of seconds, which some long ones do not move; 0 if there are none."""
    return float(np.median(values_s)) * math.exp(rng.normal(0, 0.2)) if values_s else 0.0


def _chance(seen: int, among: int, typical: tuple[float, float], rng: Generator) -> float:
    """Return a possible chance of what was seen a number of times, and is rare in other sweeps."""
    bad, all_seen = typical
    return float(rng.beta(bad + seen, all_seen - bad + max(among - seen, 0)))


def _later(spec: SweepSpec, evidence: Evidence, rng: Generator) -> float:
    """Return a possible chance that a trial fails on its way, over the length of a whole trial."""
    whole = evidence.steps / (spec.last_step or 1)  # trials, as if all had gone to their ends
    return min(float(rng.gamma(0.5 + evidence.failed_later) / (25.0 + whole)), 1.0)
