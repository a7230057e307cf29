"""A proposal for several objectives, or under limits; trials may fail as well.

The acquisition is the expected hypervolume improvement on the front of posterior means (with one
objective that is the expected improvement), times the probability that the trial does not fail and
keeps each limit. While no trial keeps the limits, that probability alone is searched.

With several objectives two aims take turns, as the models do: all objectives, each with its own
model, and one random weighting of them, which finds its way to the front sooner.

Axes: N trials with a result, K objectives, R rows of the models, F front points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.random import Generator

from searchers.gp.acquisition import Acquisition
from searchers.gp.fits import MODELS
from searchers.gp.hypervolume import LogExpectedHypervolumeImprovement
from searchers.gp.kernels import Array, Index
from searchers.gp.maximise import FRUGAL, THOROUGH, Candidates, Maximiser
from searchers.gp.outcomes import Learned, Outcomes, View
from searchers.gp.terms import Sum
from searchers.gp.turn import FRUGAL_ABOVE, INCUMBENTS
from searchers.gp.warping import TailCompression, standardized
from searchers.pareto import fronts, order, spreading
from searchers.searcher import Observation, Proposal
from searchers.space import Space

AUGMENTATION = 0.05  # the share of the sum, which tells weakly dominated trials apart
FRONT_POINTS = {1: 1, 2: 200, 3: 60, 4: 30}  # by objectives: up to some 400 boxes


@dataclass(frozen=True)
class Found:
    """Scored candidates, the best first, and what a proposal's note is to say of them."""

    candidates: Candidates
    reason: str  # what the candidates are the best in
    model: str
    fits: Mapping[str, object]

    def proposal(self, space: Space, place: int, fits: Mapping[str, object]) -> Proposal:
        """The candidate at that place, with these fits noted as well."""
        note = {
            "source": "model",
            "model": self.model,
            "reason": self.reason,
            "acquisition": float(self.candidates.value_N[place]),
            "fits": {**self.fits, **fits},
        }
        return Proposal(space.decode(self.candidates.points.unit_NP[place]), note)


def propose_several(
    space: Space,
    history: Sequence[Observation],
    earlier: Sequence[Observation],
    terms: Sequence[Acquisition],
    rows: int,
    rng: Generator,
) -> Found:
    """Candidates for the next trial, old configurations among them.

    Args:
        space: what to search.
        history: of this sweep. Fits start from those that its notes tell of.
        earlier: trials of other sweeps; there are at least two with results in all.
        terms: what is added to the logarithm of the acquisition.
        rows: trials that the models see at most, so that the cost of a proposal stays bounded.
        rng: for the fits and the search.

    Raises:
        ValueError: a model failed (LinAlgError is one).
    """
    limits = max(len(seen.excess) for seen in (*earlier, *history))
    outcomes = Outcomes.of(space, history, limits, earlier).bounded(rows)
    view = View.of(space, outcomes, history)
    losses = aimed_at(outcomes.losses_NK, len(history), rng)
    aims = list(view.of_losses(losses, rng))
    limited = list(view.of_limits(outcomes.excess_NL, rng))
    working = list(view.of_failures(rng))
    chances = Sum((*(one.log_probability for one in (*limited, *working)), *terms))

    mean_RK = np.stack([one.posterior.fitted_N for one in aims], axis=1)
    kept_R = np.append(np.flatnonzero(outcomes.is_kept_N), view.pending_kept(limited))
    acquisition: Acquisition = chances
    if len(kept_R):
        reason = f"largest expected improvement of {', '.join(one.name for one in aims)}"
        front_R = kept_R[fronts(mean_RK[kept_R]) == 0]
        acquisition = Sum((improvement(aims, front_R), chances))
        near_R = kept_R[order(mean_RK[kept_R])][: max(INCUMBENTS, len(front_R))]
        start_R = rng.permutation(near_R)[:INCUMBENTS]
    else:
        reason = "most likely to keep the limits, which no trial has kept"
        start_R = np.argsort(-chances(view.column_RD), kind="stable")[:INCUMBENTS]
    effort = FRUGAL if len(mean_RK) > FRUGAL_ABOVE else THOROUGH
    found = Maximiser(space, view.encoding, acquisition, None, effort).search(
        view.points.unit_NP[start_R], rng
    )
    fits = {one.name: one.fit.note() for one in (*aims, *limited, *working)}
    return Found(found, reason, view.model.name, fits)


def improvement(aims: Sequence[Learned], front_R: Index) -> LogExpectedHypervolumeImprovement:
    """Over the front, up to the worst mean of any trial in each objective.

    A reference close behind the front would let its ends move outwards only step by step. Of a
    large front, points that are spread over it stand for all.
    """
    posteriors = [one.posterior for one in aims]
    mean_RK = np.stack([one.fitted_N for one in posteriors], axis=1)
    front_FK = mean_RK[front_R]
    spread_F = list(islice(spreading(front_FK), FRONT_POINTS[len(aims)]))
    return LogExpectedHypervolumeImprovement.of(posteriors, front_FK[spread_F], mean_RK.max(axis=0))


def aimed_at(losses_NK: Array, trials: int, rng: Generator) -> dict[str, Array]:
    """The losses to improve, by name: in every other pair of turns, one for all objectives."""
    if losses_NK.shape[1] > 1 and trials // len(MODELS) % 2:
        return {"a random weighting": scalarized(losses_NK, rng)}
    return {f"objective {place}": loss_N for place, loss_N in enumerate(losses_NK.T)}


def scalarized(losses_NK: Array, rng: Generator) -> Array:
    """One loss for all objectives: their augmented Chebyshev sum under random weights.

    Each objective goes from 0 at its best to 1 at its worst, with its tail compressed.
    Source: Knowles, ParEGO (2006), eq. 2.
    """
    output_NK = np.stack(
        [standardized(TailCompression.fit, loss_N).forward(loss_N) for loss_N in losses_NK.T],
        axis=1,
    )
    extent_K = np.ptp(output_NK, axis=0)
    share_NK = (output_NK - output_NK.min(axis=0)) / np.where(extent_K > 0.0, extent_K, 1.0)
    weighted_NK = rng.dirichlet(np.ones(losses_NK.shape[1])) * share_NK
    scalar_N: Array = weighted_NK.max(axis=1) + AUGMENTATION * weighted_NK.sum(axis=1)
    return scalar_N
