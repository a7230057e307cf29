"""Proposals for several objectives, or under limits; trials may fail as well.

The acquisition is the expected hypervolume improvement on the front of posterior means (with one
objective that is the expected improvement), times the probability that the trial does not fail and
keeps each limit. While no trial keeps the limits, that probability alone is searched.

With several objectives two aims take turns, as the models do: all objectives, each with its own
model, and one random weighting of them, which reaches the front sooner.

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
from searchers.gp.outcomes import OutcomeModel, Outcomes, TrialColumns
from searchers.gp.proposer import FRUGAL_ABOVE, INCUMBENTS
from searchers.gp.terms import Sum
from searchers.gp.warping import TailCompression, standardized
from searchers.pareto import fronts, order, spreading
from searchers.searcher import Observation, Proposal
from searchers.space import Space

AUGMENTATION = 0.05  # the weight of the sum, which tells weakly dominated trials apart
FRONT_POINTS = {1: 1, 2: 200, 3: 60, 4: 30}  # by objectives: up to some 400 boxes


@dataclass(frozen=True)
class ScoredCandidates:
    """Scored candidates, the best first, with the contents of a proposal's note."""

    candidates: Candidates
    reason: str  # the criterion by which the candidates are the best
    model: str
    fits: Mapping[str, object]

    def proposal(self, space: Space, index: int, fits: Mapping[str, object]) -> Proposal:
        """Return the candidate at `index`, with these fits added to the note."""
        note = {
            "source": "model",
            "model": self.model,
            "reason": self.reason,
            "acquisition": float(self.candidates.value_N[index]),
            "fits": {**self.fits, **fits},
        }
        return Proposal(space.decode(self.candidates.points.unit_NP[index]), note)


def propose_several(
    space: Space,
    history: Sequence[Observation],
    earlier: Sequence[Observation],
    terms: Sequence[Acquisition],
    rows: int,
    rng: Generator,
) -> ScoredCandidates:
    """Return candidates for the next trial, old configurations among them.

    Args:
        space: the space to search.
        history: of this sweep; its notes hold earlier fits, from which new fits start.
        earlier: trials of other sweeps; there are at least two with results in all.
        terms: added to the logarithm of the acquisition.
        rows: trials given to the models at most, so that the cost of a proposal stays bounded.
        rng: for the fits and the search.

    Raises:
        LinAlgError, FloatingPointError: the numerics of a model failed.
    """
    limits = max(len(seen.excess) for seen in (*earlier, *history))
    everything = Outcomes.of(space, history, limits, earlier)
    outcomes = everything.bounded(rows)
    view = TrialColumns.of(space, outcomes, everything, history)
    losses = target_losses(outcomes.losses_NK, len(history), rng)
    aims = list(view.of_losses(losses, rng))
    limited = list(view.of_limits(outcomes.excess_NL, rng))
    failures = list(view.of_failures(rng))
    chances = Sum((*(learned.log_probability for learned in (*limited, *failures)), *terms))

    mean_RK = np.stack([learned.posterior.fitted_N for learned in aims], axis=1)
    feasible_R = np.append(np.flatnonzero(outcomes.is_kept_N), view.pending_kept(limited))
    acquisition: Acquisition = chances
    if len(feasible_R):
        reason = f"largest expected improvement of {', '.join(learned.name for learned in aims)}"
        front_R = feasible_R[fronts(mean_RK[feasible_R]) == 0]
        acquisition = Sum((improvement(aims, front_R), chances))
        near_R = feasible_R[order(mean_RK[feasible_R])][: max(INCUMBENTS, len(front_R))]
        start_R = rng.permutation(near_R)[:INCUMBENTS]
    else:
        reason = "most likely to keep the limits, which no trial has kept"
        start_R = np.argsort(-chances(view.column_RD), kind="stable")[:INCUMBENTS]
    effort = FRUGAL if len(mean_RK) > FRUGAL_ABOVE else THOROUGH
    candidates = Maximiser(space, view.encoding, acquisition, None, effort).search(
        view.points.unit_NP[start_R], rng
    )
    fits = {learned.name: learned.fit.note() for learned in (*aims, *limited, *failures)}
    return ScoredCandidates(candidates, reason, view.model.name, fits)


def improvement(aims: Sequence[OutcomeModel], front_R: Index) -> LogExpectedHypervolumeImprovement:
    """Return the acquisition over the front, up to the worst mean of any trial in each objective.

    A reference close behind the front would let its ends move outwards only step by step. Of a
    large front, points that are spread over it stand for all.
    """
    posteriors = [posterior.posterior for posterior in aims]
    mean_RK = np.stack([posterior.fitted_N for posterior in posteriors], axis=1)
    front_FK = mean_RK[front_R]
    spread_F = list(islice(spreading(front_FK), FRONT_POINTS[len(aims)]))
    return LogExpectedHypervolumeImprovement.of(posteriors, front_FK[spread_F], mean_RK.max(axis=0))


def target_losses(losses_NK: Array, trials: int, rng: Generator) -> dict[str, Array]:
    """Return the losses to improve, by name: in every other pair of turns, one weighted loss."""
    if losses_NK.shape[1] > 1 and trials // len(MODELS) % 2:
        return {"a random weighting": scalarized(losses_NK, rng)}
    return {f"objective {index}": loss_N for index, loss_N in enumerate(losses_NK.T)}


def scalarized(losses_NK: Array, rng: Generator) -> Array:
    """Return one loss for all objectives: an augmented Chebyshev sum under random weights.

    Each objective is scaled from 0 at its best to 1 at its worst, with its tail compressed.
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
