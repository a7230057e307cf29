"""The predicted seconds of a step of a trial, for improvement per second.

Seconds are per step where trials report steps: a trial that was stopped early took less time, which
says nothing about its configuration.

Axes: N timed trials, D model columns.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from searchers.gp.encoding import Encoding, units
from searchers.gp.fits import Fit, Model
from searchers.gp.model import with_more_noise
from searchers.gp.proposer import outcome_of
from searchers.gp.terms import LogCost
from searchers.searcher import Observation
from searchers.space import Space

COST = "cost"  # name of the outcome in the notes
MIN_TIMED_TRIALS = 3  # timed trials from which seconds are predicted


def learned_cost(
    space: Space, model: Model, history: Sequence[Observation], max_trials: int, rng: Generator
) -> tuple[LogCost, Fit] | None:
    """Return the acquisition term and its fit; None: too few trials have times.

    Args:
        space: the space to search.
        model: the model whose turn it is.
        history: with the seconds of trials as `cost`.
        max_trials: number of timed trials to use, the latest.
        rng: for the fit.
    """
    timed = [seen for seen in history if seen.state == "done" and (seen.cost or 0.0) > 0.0]
    if len(timed) < MIN_TIMED_TRIALS:
        return None
    latest, encoding = timed[-max_trials:], Encoding.of(space)
    log_N = np.log([_seconds(seen) for seen in latest])
    deviation = float(log_N.std()) or 1.0
    points = encoding.snap(units(space, [seen.params for seen in latest]))
    output_N = (log_N - log_N.mean()) / deviation
    seconds = outcome_of(COST, model, encoding, encoding.columns_of(points), output_N)
    seconds = replace(seconds, prior=with_more_noise(seconds.prior))
    posterior, fitted = seconds.condition(history, len(timed), rng)
    return LogCost(posterior, deviation), fitted


def _seconds(seen: Observation) -> float:
    """Return the seconds of a step; of the whole trial where it reports no steps."""
    steps = seen.curve[-1][0] if seen.curve else 1
    return (seen.cost or 0.0) / max(steps, 1)
