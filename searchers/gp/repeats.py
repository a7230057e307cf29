"""Trials that repeat a configuration with other random numbers, where the metric is noisy.

The configuration that is predicted to be best is repeated: what it gives on average is what the
search is for, and how far its results lie apart tells the models how little to trust single ones.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from searchers.gp.proposer import Proposer
from searchers.searcher import REPEAT_OF, Observation, Proposal

REPEAT_EVERY, REPEAT_AT = 5, 3  # in turns; never the turn of a proposal within a category
# Once there is a repeat, nothing is repeated if the log of the noise is so many deviations of its
# prior below what that expects.
NEGLIGIBLE = 0.7


def is_repeat_due(history: Sequence[Observation]) -> bool:
    """Return whether it is the turn of a repeat."""
    return len(history) % REPEAT_EVERY == REPEAT_AT


def repeated(
    proposer: Proposer, history: Sequence[Observation], results: int, rng: Generator
) -> Proposal | None:
    """Return the configuration of the lowest prediction again; None: repeats teach nothing.

    They do not where earlier ones have shown that there is hardly any noise.

    Args:
        proposer: of all evidence, or a part of it.
        history: its notes hold earlier fits.
        results: the number of all results, whose growth makes new fits due.
        rng: for the fit.
    """
    fitted = proposer.fitted(history, results, rng)
    prior = replace(proposer, informed=None).prior  # earlier sweeps say nothing of this one's noise
    expected, deviation = prior.mean_T[-2], prior.deviation_T[-2]
    negligible = math.exp(expected - NEGLIGIBLE * deviation)
    if _has_repeats(history) and fitted.hyperparameters.noise < negligible:
        return None
    process = proposer.posterior(fitted)
    waiting = [seen.note.get(REPEAT_OF) for seen in history if seen.state == "pending"]
    tried, key = proposer.evidence.params, proposer.space.key
    for trial in np.argsort(process.fitted_N[: len(tried)], kind="stable"):
        params = tried[trial]
        equal = (seen for seen in history if seen.params == params)  # True == 1, but they are two
        first = next((seen for seen in equal if key(seen.params) == key(params)), None)
        if first is not None and first.state == "done" and first.id not in waiting:
            note = {
                "source": "repeat",
                REPEAT_OF: first.id,
                "reason": f"{first.id} again, which is predicted to be best",
                **proposer.expectation(process, fitted, first.params),
                "fits": {proposer.outcome: fitted.note()},
            }
            return Proposal(first.params, note)
    return None


def _has_repeats(history: Sequence[Observation]) -> bool:
    """Return whether any configuration has several results."""
    return any(
        seen.repeats or (REPEAT_OF in seen.note and seen.loss is not None) for seen in history
    )
