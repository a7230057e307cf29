"""What a step of a trial takes, so that improvement can be counted by the second.

Seconds are those of a step, where trials tell their steps: a trial that was stopped early took less
time, which says nothing of its configuration.

Axes: N timed trials, D model columns.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from searchers.gp.encoding import Encoding, units
from searchers.gp.fits import Fit, Model
from searchers.gp.terms import LogCost
from searchers.gp.turn import outcome_of
from searchers.searcher import Observation
from searchers.space import Space

COST = "cost"  # the outcome, by its name in the notes
ENOUGH = 3  # timed trials


def learned_cost(
    space: Space, model: Model, history: Sequence[Observation], most: int, rng: Generator
) -> tuple[LogCost, Fit] | None:
    """The term of the acquisition and its fit; None: too few trials tell what they took.

    Args:
        space: what is searched.
        model: whose turn it is.
        history: with the seconds of trials as `cost`.
        most: of the latest timed trials that are looked at.
        rng: for the fit.
    """
    timed = [seen for seen in history if seen.state == "done" and (seen.cost or 0.0) > 0.0]
    if len(timed) < ENOUGH:
        return None
    latest, encoding = timed[-most:], Encoding.of(space)
    log_N = np.log([_seconds(seen) for seen in latest])
    deviation = float(log_N.std()) or 1.0
    points = encoding.snap(units(space, [seen.params for seen in latest]))
    output_N = (log_N - log_N.mean()) / deviation
    seconds = outcome_of(COST, model, encoding, encoding.columns_of(points), output_N)
    posterior, fitted = seconds.learned(history, len(timed), rng)
    return LogCost(posterior, deviation), fitted


def _seconds(seen: Observation) -> float:
    """Of a step; of the whole trial where it tells no steps."""
    steps = seen.curve[-1][0] if seen.curve else 1
    return (seen.cost or 0.0) / max(steps, 1)
