"""A turn of one model: the evidence in its outputs, its fits, and its best candidates.

Failed and running trials count as if they came out as predicted; where trials fail is learned by
another model, whose probability multiplies the acquisition.

Axes: T trials with a result, R rows (a trial has one at each step at which trials are judged), P
searched parameters, D model columns.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator

from searchers.gp.acquisition import Acquisition, LogExpectedImprovement
from searchers.gp.encoding import Encoding, Mask, Points, units
from searchers.gp.feasibility import (
    Labels,
    LogProbabilityBelow,
    labels_of_failures,
    prior_of_labels,
)
from searchers.gp.fidelity import SAME_STOP, AtMaxFidelity, with_context
from searchers.gp.fits import PROBE, Fit, FitTask, Model
from searchers.gp.kernels import Array
from searchers.gp.learned.prior import LearnedPrior
from searchers.gp.learned.process import WithMean, coefficient, solve_unfitted
from searchers.gp.maximise import FRUGAL, THOROUGH, Candidates, FixedFeatures, Maximiser
from searchers.gp.model import Posterior, Prior, Rows, with_more_noise
from searchers.gp.terms import Sum
from searchers.gp.training_data import Evidence
from searchers.gp.warping import Standardized, spans_decades, standardized
from searchers.searcher import Observation
from searchers.space import Params, Space

# Share of the kernel for own effects where no parameter has an order, with six or more of them: of
# two categories nothing but the results says whether they are alike, so the joint part learns
# little from few trials. Elsewhere a share of .3 costs regret (benchmarks/gp-experiments.md).
ADDITIVE_WEIGHT = 0.6
# With more rows the joint kernel has learned own effects, and they cost too much.
ADDITIVE_MAX_ROWS = 80
MIN_CATEGORY_RESULTS = 3  # results in a category from which it gets a warp of its own
FRUGAL_ABOVE = 80  # rows beyond which a candidate costs enough to score fewer
INCUMBENTS = 5
# Power of the probability not to fail: an optimum at the edge of the failures is a trap.
FEASIBILITY_POWER = 8.0
STOPS_IN_A_ROW = 5  # at the first rung, from which on a proposal should pass it
LOSS, FAILURE, STOPPED = "loss", "failure", "stopped"  # names of the outcomes in the notes

Process = Posterior | AtMaxFidelity | WithMean


@dataclass(frozen=True)
class Proposer:
    """A model and its view of the evidence, ready to be fitted and asked for candidates."""

    space: Space
    encoding: Encoding
    model: Model
    warp: Standardized
    output_R: Array
    evidence: Evidence
    points: Points  # T trials with a result, then those that failed, then running ones
    learned: LearnedPrior | None = None  # of the losses; None: nothing is known beforehand
    informed: Callable[[Prior], Prior] | None = None  # by earlier sweeps; None: there are none
    focus: FixedFeatures | None = None  # the only place to search; None: everywhere
    rivals: Mask | None = None  # the points whose best must be improved on; None: all

    @classmethod
    def of(
        cls, space: Space, model: Model, evidence: Evidence, learned: LearnedPrior | None = None
    ) -> "Proposer":
        encoding = Encoding.of(space)
        everywhere = [*evidence.params, *evidence.failed, *evidence.pending]
        points = encoding.snap(units(space, everywhere))
        loss_R = evidence.loss_R[evidence.first_R]
        warp = standardized(model.warp, loss_R, in_logarithms=model.in_logarithms)
        output_R = warp.forward(evidence.loss_R)
        return cls(space, encoding, model, warp, output_R, evidence, points, learned)

    def given(self, evidence: Evidence) -> "Proposer":
        """Return the proposer of the same model with other evidence."""
        return Proposer.of(self.space, self.model, evidence)

    def within_category(self, focus: FixedFeatures) -> "Proposer":
        """Return the proposer within one category, which improves on the best there.

        A warp of all losses tells those near the best of all apart; a category that is behind looks
        flat to it. So the warp is fitted to the losses of the category. With few of them the best
        of all stays the one to improve on.
        """
        rivals_N = focus.holds(self.points)
        if np.count_nonzero(rivals_N[: self._trials]) < MIN_CATEGORY_RESULTS:
            return replace(self, focus=focus)
        loss_R, first_R = self.evidence.loss_R, self.evidence.first_R
        rival_R = rivals_N[self.evidence.trial_R]
        model = PROBE.of_logarithms if self.model.in_logarithms else PROBE
        warp = standardized(
            model.warp, loss_R[first_R], loss_R[rival_R & first_R], model.in_logarithms
        )
        output_R = warp.forward(loss_R)
        return replace(
            self, model=model, warp=warp, output_R=output_R, focus=focus, rivals=rivals_N
        )

    @cached_property
    def column_TD(self) -> Array:
        """Model columns of the trials with a result."""
        return self.encoding.columns_of(self.points.take(range(self._trials)))

    @cached_property
    def rows(self) -> Rows:
        """The losses as rows of the model, with a column for each context.

        With a context the kernel has no own effects: they would hold at all steps alike (with ASHA
        on trained curves, log regret at 300 epochs was .037 lower without, 13 pairs).
        """
        x_RD = np.hstack([self.column_TD[self.evidence.trial_R], self.evidence.context_RC])
        contexts = self.encoding.parameters + np.arange(self._contexts)
        parameter_D = np.append(self.encoding.parameter_D, contexts)
        share = 0.0 if self._contexts else additive_weight(len(x_RD), self.encoding)
        return Rows(x_RD, self.output_R, parameter_D, share)

    @property
    def prior(self) -> Prior:
        """Prior of the model of the losses.

        With a context it expects more noise, whatever earlier sweeps had. With as little as
        elsewhere, what is known of the best is certain, and what was stopped is not, so that its
        like is proposed again and again.
        """
        prior = self.model.prior(self.encoding.parameters)
        if self.informed is not None:
            prior = self.informed(prior)
        if not self._contexts:
            return prior
        return with_context(with_more_noise(prior), self._contexts)

    @property
    def _contexts(self) -> int:
        return int(self.evidence.context_RC.shape[1])

    @property
    def _trials(self) -> int:
        return len(self.evidence.params)

    @property
    def _ended(self) -> int:
        return self._trials + len(self.evidence.failed)

    def fitted(self, history: Sequence[Observation], trials: int, rng: Generator) -> Fit:
        """Return the fit of the losses; see `Outcome.fitted`."""
        first_R = self.output_R
        if self.rivals is not None:
            rival_R = self.rivals[self.evidence.trial_R]
            first_R = np.where(rival_R, first_R - np.ptp(first_R) - 1.0, first_R)
        rows = self.rows
        if self.learned is not None:
            beta = coefficient(self.mean_R, self.output_R, solve_unfitted)
            rows = replace(rows, loss_N=self.output_R - beta * self.mean_R)
        losses = FitTask(self.outcome, self.model, rows, self.prior, first_R)
        return losses.fitted(history, trials, rng)

    def in_best_scale(
        self, history: Sequence[Observation], trials: int, rng: Generator
    ) -> "Proposer":
        """Return the proposer, or that of logarithms where losses fall over decades.

        If logarithms predict ranks worse, it is no such loss: one that is proportional to a
        parameter has a pole there. If both do so alike, as with few ranks, they are taken.
        """
        if not spans_decades(self.evidence.loss_R):
            return self
        model = self.model.of_logarithms
        logarithms = Proposer.of(self.space, model, self.evidence, self.learned)
        logarithms = replace(logarithms, informed=self.informed)
        off, off_there = (each.misplaced(history, trials, rng) for each in (self, logarithms))
        return logarithms if off_there <= off else self

    def misplaced(self, history: Sequence[Observation], trials: int, rng: Generator) -> float:
        """Return how many ranks losses at the highest step lie off what other rows predict.

        Ranks, since two warps of the same losses have no other scale in common. In closed form:
        Rasmussen & Williams (2006), eq. 5.12.
        """
        from scipy.stats import rankdata  # half a second, which few commands need

        process, _ = self._given_results(self.fitted(history, trials, rng))
        precision_RR = process.solve(np.eye(len(self.output_R)))
        predicted_R = self.output_R - process.alpha_N / np.diag(precision_RR)
        is_top_R = ~self.evidence.context_RC.any(axis=1)
        rank_E, predicted_rank_E = (
            rankdata(output_R[is_top_R]) for output_R in (self.output_R, predicted_R)
        )
        return float(np.abs(rank_E - predicted_rank_E).mean())

    @cached_property
    def known_T(self) -> Array:
        """The learned prior's mean at the trials with a result."""
        assert self.learned is not None
        return self.learned.mean(self.column_TD)

    @property
    def offset(self) -> float:
        """The average of the learned prior's mean over the rows."""
        return float(self.known_T[self.evidence.trial_R].mean())

    @property
    def mean_R(self) -> Array:
        """The learned prior's mean at the rows, less its average.

        It is of last losses. It holds in full at the highest step, the less the lower the step, and
        not at all at a 27th of the highest (benchmarks/gp-experiments.md).
        """
        mean_R: Array = (self.known_T - self.offset)[self.evidence.trial_R]
        if self._contexts:
            mean_R *= np.maximum(1.0 + self.evidence.context_RC[:, 0], 0.0)
        return mean_R

    @property
    def outcome(self) -> str:
        """Name of the fitted outcome in the notes; within a category there is another warp."""
        if self.focus is None or self.rivals is None:
            return LOSS
        name = self.space.searched[self.focus.parameter]
        return f"{LOSS} where {name} is {self.space[name].from_unit(self.focus.unit)!r}"

    def posterior(self, fitted: Fit) -> Process:
        """Return the process given the results; failed and running trials as they are predicted."""
        everywhere, beta = self._given_results(fitted)
        one_each = len(self.output_R) == self._trials and not self._contexts
        at_top = everywhere if one_each else AtMaxFidelity.of(everywhere, self.column_TD)
        process: Process = at_top
        if self.learned is not None:
            mean_T = beta * (self.known_T - self.offset)
            function = self.learned.mean.scaled(beta, self.offset)
            process = WithMean(at_top, function, beta, at_top.fitted_N + mean_T)
        expected = self.points.take(range(self._trials, len(self.points)))
        return process.fantasize(self.encoding.columns_of(expected)) if len(expected) else process

    def _given_results(self, fitted: Fit) -> tuple[Posterior, float]:
        """Return the process given the results less the learned prior's mean, and its factor."""
        process, beta = Posterior.of(self.rows, fitted.hyperparameters), 0.0
        if self.learned is not None:
            beta = coefficient(self.mean_R, self.output_R, process.solve)
            process = process.with_losses(self.output_R - beta * self.mean_R)
        return process, beta

    def success_probability(
        self, history: Sequence[Observation], ended: int, rng: Generator
    ) -> tuple[LogProbabilityBelow, Fit] | None:
        """Return the probability that a trial does not fail, and its fit; None: no failure yet.

        Args:
            history: its notes hold earlier fits.
            ended: the number of ended trials, of which the points may be a part.
            rng: for the fit.
        """
        labels = labels_of_failures(np.arange(self._ended) >= self._trials)
        if labels is None:
            return None
        x_ND = self.encoding.columns_of(self.points.take(range(self._ended)))
        failures = failures_of(self.model, self.encoding, x_ND, labels)
        posterior, fitted = failures.condition(history, ended, rng)
        return LogProbabilityBelow(posterior, labels.threshold, FEASIBILITY_POWER), fitted

    def pass_probability(
        self, history: Sequence[Observation], ended: int, rng: Generator
    ) -> tuple[LogProbabilityBelow, Fit] | None:
        """Return the probability that a trial passes the first rung, and its fit.

        Where steps change losses by far more than parameters do, or a model of logarithms tells low
        losses apart, all losses at the first rung are alike: the model does not see why trials were
        stopped there, and proposes their like for ever. Elsewhere this costs more epochs than it
        saves (benchmarks/gp-experiments.md).

        Args:
            history: its notes hold earlier fits.
            ended: the number of ended trials, of which the rows may be a part.
            rng: for the fit.

        Returns:
            None: the losses are not logarithms and one of the last trials passed, too few trials
            ended to say so, or all were stopped there, or none.
        """
        ended_T = [params not in self.evidence.pending for params in self.evidence.params]
        if not self._contexts or sum(ended_T) < STOPS_IN_A_ROW:
            return None
        last_T = np.full(self._trials, -np.inf)
        np.maximum.at(last_T, self.evidence.trial_R, self.evidence.context_RC[:, 0])
        last_E = last_T[ended_T]
        first = np.partition(last_E, 1)[1]  # one may have ended before the rung, by hand
        stopped_E = last_E <= first + SAME_STOP
        labels = labels_of_failures(stopped_E)
        is_due = self.model.in_logarithms or stopped_E[-STOPS_IN_A_ROW:].all()
        if labels is None or not is_due:
            return None
        x_ED = self.column_TD[ended_T]
        stopped = failures_of(self.model, self.encoding, x_ED, labels, STOPPED)
        posterior, fitted = stopped.condition(history, ended, rng)
        return LogProbabilityBelow(posterior, labels.threshold, FEASIBILITY_POWER), fitted

    def search(self, process: Process, terms: Sequence[Acquisition], rng: Generator) -> Candidates:
        """Return scored candidates, the best first, old configurations among them.

        Args:
            process: the model of the loss, whose expected improvement is maximized.
            terms: added to its logarithm.
            rng: for the candidates.
        """
        rivals_N = np.ones(len(self.points), dtype=np.bool_) if self.rivals is None else self.rivals
        rival_T = np.flatnonzero(rivals_N[: self._trials])
        lowest = rival_T[np.argsort(process.fitted_N[rival_T], kind="stable")[:INCUMBENTS]]
        # The loss predicted for a failed trial is no result to improve on.
        eligible_N = np.delete(rivals_N, np.s_[self._trials : self._ended])
        best = np.delete(process.fitted_N, np.s_[self._trials : self._ended])[eligible_N].min()
        acquisition: Acquisition = LogExpectedImprovement(process, float(best))
        if terms:
            acquisition = Sum((acquisition, *terms))
        is_costly = len(self.output_R) > FRUGAL_ABOVE or self.space.is_rare
        effort = FRUGAL if is_costly else THOROUGH
        maximiser = Maximiser(self.space, self.encoding, acquisition, self.focus, effort)
        return maximiser.search(self.points.unit_NP[lowest], rng)

    def least_visited(self) -> FixedFeatures | None:
        """Return the least-visited category, by share of its parameter; None: no categories."""
        shares = list(self._visits())
        return min(shares, key=lambda pair: pair[0])[1] if shares else None

    def _visits(self) -> Iterator[tuple[int, FixedFeatures]]:
        for index, parameter in enumerate(self.encoding.searched):
            active_N = self.points.active_NP[:, index]
            if not parameter.categorical or not active_N.any():
                continue
            unit_N = self.points.unit_NP[active_N, index]
            for centre in parameter.centre_V.tolist():
                visits = int(np.count_nonzero(unit_N == centre))
                yield visits * len(parameter.centre_V), FixedFeatures(index, centre)

    def predicted(self, process: Process, params: Params) -> tuple[float, float]:
        """Return the mean and deviation of the loss, in the user's units.

        The deviation is half the distance between one standard deviation below and above.
        """
        x_MD = self.encoding.columns_of(self.encoding.snap(units(self.space, [params])))
        mean_M, variance_M = process.predict(x_MD)
        spread = np.sqrt(variance_M[0]) * np.array([-1.0, 0.0, 1.0])
        low, middle, high = self.warp.backward(mean_M[0] + spread).tolist()
        return middle, (high - low) / 2.0

    def expectation(self, process: Process, fitted: Fit, params: Params) -> dict[str, object]:
        """Return what the model expects of a configuration, for the note of its proposal."""
        mean, deviation = self.predicted(process, params)
        return {
            "model": self.model.name,
            "mean": mean,
            "deviation": deviation,
            "noise": self.noise_near(mean, fitted),
            **({"learned_prior": process.beta} if isinstance(process, WithMean) else {}),
        }

    def noise_near(self, loss: float, fitted: Fit) -> float:
        """Return how far equal trainings deviate where they give this loss, in its units."""
        spread = math.sqrt(fitted.hyperparameters.noise) * np.array([-1.0, 1.0])
        ends = self.warp.backward(self.warp.forward(np.array([loss])) + spread)
        return float(np.ptp(ends)) / 2.0


def outcome_of(
    name: str, model: Model, encoding: Encoding, x_ND: Array, output_N: Array
) -> FitTask:
    """Return an outcome with the prior of its model; rows with the lowest outputs come first."""
    share = additive_weight(len(x_ND), encoding)
    rows = Rows(x_ND, output_N, encoding.parameter_D, share)
    return FitTask(name, model, rows, model.prior(encoding.parameters), output_N)


def failures_of(
    model: Model, encoding: Encoding, x_ND: Array, labels: Labels, name: str = FAILURE
) -> FitTask:
    """Return the outcome whether configurations fail; those that did come first."""
    failures = outcome_of(name, model, encoding, x_ND, labels.output_N)
    return replace(failures, prior=prior_of_labels(failures.prior), first_N=-labels.output_N)


def additive_weight(rows: int, encoding: Encoding) -> float:
    """Return the share of the kernel for own effects, with `rows` rows: 0 if any has an order.

    With few parameters the joint part learns as soon.
    """
    if rows > ADDITIVE_MAX_ROWS or not all(known.categorical for known in encoding.searched):
        return 0.0
    return ADDITIVE_WEIGHT * min(1.0, (encoding.parameters - 1) / 5.0)
