"""What a history says of several outcomes, and the models that learn it, one an outcome.

Each objective has a process of its own over its warped losses, each limit one over how far it was
exceeded, and failures one over labels, once there is a failure. Failed and pending trials count as
if they came out as predicted.

Axes: N trials with a result, K objectives, L limits, R rows (those N, then failed trials, then
pending ones), D model columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from searchers.fidelity import Scored, comparable
from searchers.gp.encoding import Encoding, Mask, Points, units
from searchers.gp.evidence import best_and_random
from searchers.gp.feasibility import (
    LogProbabilityBelow,
    labels_of_excess,
    labels_of_failures,
    prior_of_labels,
)
from searchers.gp.fits import MODELS, Fit, Model, last_fit
from searchers.gp.kernels import Array, Index
from searchers.gp.model import Posterior, Prior, Rows
from searchers.gp.turn import FAILURE, FIT_ROWS, own_share, renewed
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
class Outcome:
    """What is to be learned of one outcome."""

    name: str
    rows: Rows
    threshold: float  # what good trials do not exceed; inf: an objective
    prior: Prior
    expected_RD: Array  # failed and pending trials, which count as if they came out as predicted
    first_N: Array  # where there are too many rows for a fit, the lowest in this come first


@dataclass(frozen=True)
class Learned:
    """The model of one outcome."""

    name: str
    posterior: Posterior
    threshold: float
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

    def of_losses(self, losses: Mapping[str, Array]) -> Iterator[Outcome]:
        """Each of the named objectives (N)."""
        for name, loss_N in losses.items():
            output_N = standardized(self.model.warp, loss_N).forward(loss_N)
            yield self._outcome(name, self.column_RD[: self.told], output_N)

    def of_limits(self, excess_NL: Array) -> Iterator[Outcome]:
        """Each limit of which something is known."""
        for place, excess_N in enumerate(excess_NL.T):
            known_N = ~np.isnan(excess_N)
            if known_N.any():
                labels = labels_of_excess(excess_N[known_N])
                x_ND = self.column_RD[: self.told][known_N]
                limit = self._outcome(f"limit {place}", x_ND, labels.output_N)
                yield replace(limit, threshold=labels.threshold)

    def of_failures(self) -> Iterator[Outcome]:
        """Whether a trial fails, once one has."""
        ended = self.told + self.failed
        labels = labels_of_failures(np.arange(ended) >= self.told)
        if labels is not None:
            failure = self._outcome(FAILURE, self.column_RD[:ended], labels.output_N)
            yield replace(
                failure,
                threshold=labels.threshold,
                prior=prior_of_labels(failure.prior),
                expected_RD=self.column_RD[ended:],
                first_N=-labels.output_N,
            )

    def _outcome(self, name: str, x_ND: Array, output_N: Array) -> Outcome:
        rows = Rows(
            x_ND,
            output_N,
            self.encoding.parameter_D,
            own_share(len(x_ND), self.encoding.parameters),
        )
        prior = self.model.prior(self.encoding.parameters)
        return Outcome(name, rows, np.inf, prior, self.column_RD[self.told :], output_N)

    def learned(self, outcome: Outcome, rng: Generator) -> Learned:
        """The model of an outcome; its last fit is kept while no new one is due."""
        rows = outcome.rows
        chosen = rows.take(best_and_random(outcome.first_N, FIT_ROWS, rng))
        last = last_fit(self.history, self.model, self.encoding.parameters, outcome.name)
        fitted = renewed(last, chosen, outcome.prior, len(rows), rng)
        posterior = Posterior.of(rows, fitted.hyperparameters)
        if len(outcome.expected_RD):
            posterior = posterior.believe(outcome.expected_RD)
        return Learned(outcome.name, posterior, outcome.threshold, fitted)
