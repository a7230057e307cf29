"""What a history says of several outcomes, and the models that learn it, one an outcome.

Each objective has a process of its own over its warped losses, each limit one over how far it was
exceeded, and failures one over labels, once there is a failure. Failed and pending trials count as
if they came out as predicted.

Axes: N trials with a result, K objectives, L limits, R rows (those N, then failed trials, then
pending ones), D model columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from searchers.fidelity import Scored, comparable
from searchers.gp.encoding import Encoding, Mask, Points, units
from searchers.gp.feasibility import LogProbabilityBelow, labels_of_excess, labels_of_failures
from searchers.gp.fits import MODELS, Fit, Model, Outcome
from searchers.gp.kernels import Array, Index
from searchers.gp.model import Posterior
from searchers.gp.turn import failures_of, outcome_of
from searchers.gp.warping import LARGEST_LOSS, standardized
from searchers.pareto import fronts
from searchers.searcher import Observation
from searchers.space import Params, Space


@dataclass(frozen=True)
class Outcomes:
    """What a history says of several outcomes."""

    params: Sequence[Params]  # of the N trials with a result
    losses_NK: Array  # NaN came as the worst there is
    excess_NL: Array  # NaN: not known, which does not keep the limit
    failed: Sequence[Params]
    pending: Sequence[Params]

    @classmethod
    def of(
        cls,
        space: Space,
        history: Sequence[Observation],
        limits: int,
        earlier: Sequence[Observation] = (),
    ) -> "Outcomes":
        """Of a history, and of earlier sweeps' trials, which have a common step of their own."""
        enough = len(space.searched) + 1
        scored = [*comparable(earlier, enough), *comparable(history, enough)]
        objectives = max((len(_losses(one)) for one in scored), default=1)
        whole = [one for one in scored if len(_losses(one)) == objectives]
        told = [one.observation for one in whole]
        losses_NK = np.array([_losses(one) for one in whole]).reshape(len(told), objectives)
        unknown = (np.nan,) * limits
        ended = {id(seen) for seen in told}  # ids of an earlier sweep may be the same
        return cls(
            [seen.params for seen in told],
            np.nan_to_num(losses_NK, nan=LARGEST_LOSS, posinf=LARGEST_LOSS, neginf=-LARGEST_LOSS),
            np.array([seen.excess or unknown for seen in told]).reshape(len(told), limits),
            [one.observation.params for one in scored if one.loss is None],
            [seen.params for seen in history if seen.state == "pending" and id(seen) not in ended],
        )

    def bounded(self, most: int) -> "Outcomes":
        """At most that many of each kind: of results the first fronts, of others the latest.

        The first fronts make up half of the results, the latest trials the other half.
        """
        index = np.arange(len(self.params))
        if len(index) > most:
            order_N = np.argsort(fronts(self.losses_NK), kind="stable")
            best, others = order_N[: most // 2], np.sort(order_N[most // 2 :])
            index = np.sort(np.append(best, others[-(most - most // 2) :]))
        return Outcomes(
            [self.params[place] for place in index.tolist()],
            self.losses_NK[index],
            self.excess_NL[index],
            self.failed[-most:],
            self.pending[-most:],
        )

    @property
    def is_kept_N(self) -> Mask:
        """Whether a trial kept every limit."""
        kept_N: Mask = np.all(self.excess_NL <= 0.0, axis=1)
        return kept_N


def _losses(one: Scored) -> tuple[float, ...]:
    return one.losses or (() if one.loss is None else (one.loss,))


@dataclass(frozen=True)
class Learned:
    """The model of one outcome."""

    name: str
    posterior: Posterior
    threshold: float  # what good trials do not exceed; inf: an objective
    fit: Fit

    @property
    def log_probability(self) -> LogProbabilityBelow:
        return LogProbabilityBelow(self.posterior, self.threshold)


@dataclass(frozen=True)
class View:
    """The trials as columns: N told ones, then failed ones, then pending ones."""

    encoding: Encoding
    model: Model
    history: Sequence[Observation]
    points: Points
    column_RD: Array
    told: int
    failed: int

    @classmethod
    def of(cls, space: Space, outcomes: Outcomes, history: Sequence[Observation]) -> "View":
        encoding = Encoding.of(space)
        configurations = [*outcomes.params, *outcomes.failed, *outcomes.pending]
        points = encoding.snap(units(space, configurations))
        return cls(
            encoding,
            MODELS[len(history) % len(MODELS)],
            history,
            points,
            encoding.columns_of(points),
            len(outcomes.params),
            len(outcomes.failed),
        )

    def pending_kept(self, limited: Sequence[Learned]) -> Index:
        """The rows of pending trials that are predicted to keep every limit."""
        pending = len(self.column_RD) - self.told - self.failed
        kept_N = np.ones(pending, dtype=np.bool_)
        for one in limited:
            fitted_N = one.posterior.fitted_N
            kept_N &= fitted_N[len(fitted_N) - pending :] <= one.threshold
        return self.told + self.failed + np.flatnonzero(kept_N)

    def of_losses(self, losses: Mapping[str, Array], rng: Generator) -> Iterator[Learned]:
        """Each of the named objectives (N)."""
        x_ND = self.column_RD[: self.told]
        for name, loss_N in losses.items():
            output_N = standardized(self.model.warp, loss_N).forward(loss_N)
            objective = outcome_of(name, self.model, self.encoding, x_ND, output_N)
            yield self._learned(objective, np.inf, self.told, rng)

    def of_limits(self, excess_NL: Array, rng: Generator) -> Iterator[Learned]:
        """Each limit of which something is known."""
        for place, excess_N in enumerate(excess_NL.T):
            known_N = ~np.isnan(excess_N)
            if known_N.any():
                labels = labels_of_excess(excess_N[known_N])
                x_ND = self.column_RD[: self.told][known_N]
                name = f"limit {place}"
                limit = outcome_of(name, self.model, self.encoding, x_ND, labels.output_N)
                yield self._learned(limit, labels.threshold, self.told, rng)

    def of_failures(self, rng: Generator) -> Iterator[Learned]:
        """Whether a trial fails, once one has."""
        ended = self.told + self.failed
        labels = labels_of_failures(np.arange(ended) >= self.told)
        if labels is not None:
            failures = failures_of(self.model, self.encoding, self.column_RD[:ended], labels)
            yield self._learned(failures, labels.threshold, ended, rng)

    def _learned(self, outcome: Outcome, threshold: float, known: int, rng: Generator) -> Learned:
        """The model of an outcome; trials after the known ones come out as predicted."""
        posterior, fitted = outcome.learned(self.history, len(outcome.rows), rng)
        if known < len(self.column_RD):
            posterior = posterior.believe(self.column_RD[known:])
        return Learned(outcome.name, posterior, threshold, fitted)
