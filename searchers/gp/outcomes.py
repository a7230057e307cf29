"""The outcomes of a history, and the models that learn them, one for each outcome.

Each objective has a process of its own over its warped losses, each limit has one over the excess,
and failures have one over labels, once a trial has failed. Failed and pending trials count as if
they came out as predicted.

Axes: N trials with a result, K objectives, L limits, R rows (those N, then failed trials, then
pending ones), D model columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from searchers.fidelity import Scored, comparable
from searchers.gp.encoding import Encoding, Mask, Points, units
from searchers.gp.feasibility import LogProbabilityBelow, labels_of_excess, labels_of_failures
from searchers.gp.fits import MODELS, Fit, FitTask, Model
from searchers.gp.kernels import Array, Index
from searchers.gp.model import Posterior, with_more_noise
from searchers.gp.proposer import failures_of, outcome_of
from searchers.gp.warping import MAX_LOSS, standardized
from searchers.pareto import fronts
from searchers.searcher import Observation
from searchers.space import Params, Space


@dataclass(frozen=True)
class Outcomes:
    """The losses, excesses and failures of the trials of a history."""

    params: Sequence[Params]  # of the N trials with a result
    losses_NK: Array  # NaN was replaced by the worst possible loss
    excess_NL: Array  # NaN: unknown, which does not count as keeping the limit
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
        """Read a history, and earlier sweeps' trials, which have a common step of their own."""
        enough = len(space.searched) + 1
        scored = [
            result
            for trials in (earlier, history)
            for result in comparable(trials, enough, with_stopped=True)
        ]
        objectives = max((len(_losses(result)) for result in scored), default=1)
        complete = [result for result in scored if len(_losses(result)) == objectives]
        trials = [result.observation for result in complete]
        losses_NK = np.array([_losses(result) for result in complete]).reshape(
            len(trials), objectives
        )
        unknown = (np.nan,) * limits
        ended = {id(seen) for seen in trials}  # an earlier sweep may use the same trial ids
        return cls(
            [seen.params for seen in trials],
            np.nan_to_num(losses_NK, nan=MAX_LOSS, posinf=MAX_LOSS, neginf=-MAX_LOSS),
            np.array([seen.excess or unknown for seen in trials]).reshape(len(trials), limits),
            [result.observation.params for result in scored if result.loss is None],
            [seen.params for seen in history if seen.state == "pending" and id(seen) not in ended],
        )

    def bounded(self, limit: int) -> "Outcomes":
        """Return at most `limit` of each kind: the first fronts of results, the latest of others.

        The first fronts make up half of the results, the latest trials the other half.
        """
        index = np.arange(len(self.params))
        if len(index) > limit:
            order_N = np.argsort(fronts(self.losses_NK), kind="stable")
            best, others = order_N[: limit // 2], np.sort(order_N[limit // 2 :])
            index = np.sort(np.append(best, others[-(limit - limit // 2) :]))
        return Outcomes(
            [self.params[row] for row in index.tolist()],
            self.losses_NK[index],
            self.excess_NL[index],
            self.failed[-limit:],
            self.pending[-limit:],
        )

    @property
    def is_kept_N(self) -> Mask:
        """Whether each trial kept every limit."""
        kept_N: Mask = np.all(self.excess_NL <= 0.0, axis=1)
        return kept_N


def _losses(one: Scored) -> tuple[float, ...]:
    return one.losses or (() if one.loss is None else (one.loss,))


@dataclass(frozen=True)
class OutcomeModel:
    """The fitted model of one outcome."""

    name: str
    posterior: Posterior
    threshold: float  # not exceeded by good trials; inf: an objective
    fit: Fit

    @property
    def log_probability(self) -> LogProbabilityBelow:
        return LogProbabilityBelow(self.posterior, self.threshold)


@dataclass(frozen=True)
class TrialColumns:
    """The trials as model columns: N with a result, then failed ones, then pending ones."""

    encoding: Encoding
    model: Model
    history: Sequence[Observation]
    points: Points
    column_RD: Array
    results: int
    failed: int
    everything: Outcomes  # its numbers say when a fit is due: those of the rows stay at their bound

    @classmethod
    def of(
        cls,
        space: Space,
        outcomes: Outcomes,
        everything: Outcomes,
        history: Sequence[Observation],
    ) -> "TrialColumns":
        """Return the trials of `outcomes`, which are all or some of `everything`."""
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
            everything,
        )

    def pending_kept(self, limited: Sequence[OutcomeModel]) -> Index:
        """Return the rows of pending trials that are predicted to keep every limit."""
        pending = len(self.column_RD) - self.results - self.failed
        kept_N = np.ones(pending, dtype=np.bool_)
        for limit in limited:
            fitted_N = limit.posterior.fitted_N
            kept_N &= fitted_N[len(fitted_N) - pending :] <= limit.threshold
        return self.results + self.failed + np.flatnonzero(kept_N)

    def of_losses(self, losses: Mapping[str, Array], rng: Generator) -> Iterator[OutcomeModel]:
        """Yield the model of each named objective (N losses)."""
        x_ND = self.column_RD[: self.results]
        for name, loss_N in losses.items():
            output_N = standardized(self.model.warp, loss_N).forward(loss_N)
            objective = outcome_of(name, self.model, self.encoding, x_ND, output_N)
            seen = len(self.everything.params)
            yield self._learn(objective, np.inf, self.results, seen, rng)

    def of_limits(self, excess_NL: Array, rng: Generator) -> Iterator[OutcomeModel]:
        """Yield the model of each limit with a known excess."""
        for index, excess_N in enumerate(excess_NL.T):
            known_N = ~np.isnan(excess_N)
            if known_N.any():
                labels = labels_of_excess(self.model.warp, excess_N[known_N])
                x_ND = self.column_RD[: self.results][known_N]
                name = f"limit {index}"
                limit = outcome_of(name, self.model, self.encoding, x_ND, labels.output_N)
                limit = replace(limit, prior=with_more_noise(limit.prior))
                seen = int(np.count_nonzero(~np.isnan(self.everything.excess_NL[:, index])))
                yield self._learn(limit, labels.threshold, self.results, seen, rng)

    def of_failures(self, rng: Generator) -> Iterator[OutcomeModel]:
        """Yield the model of failures, once a trial has failed."""
        ended = self.results + self.failed
        labels = labels_of_failures(np.arange(ended) >= self.results)
        if labels is not None:
            failures = failures_of(self.model, self.encoding, self.column_RD[:ended], labels)
            seen = len(self.everything.params) + len(self.everything.failed)
            yield self._learn(failures, labels.threshold, ended, seen, rng)

    def _learn(
        self, outcome: FitTask, threshold: float, known: int, seen: int, rng: Generator
    ) -> OutcomeModel:
        """Return the model of an outcome; trials after the known ones come out as predicted.

        Args:
            outcome: with its rows.
            threshold: see `OutcomeModel`.
            known: number of trials whose outcome is known, or missing for good.
            seen: number of known outcomes, of which the rows may be a part.
            rng: for the fit.
        """
        posterior, fitted = outcome.condition(self.history, seen, rng)
        if known < len(self.column_RD):
            posterior = posterior.fantasize(self.column_RD[known:])
        return OutcomeModel(outcome.name, posterior, threshold, fitted)
