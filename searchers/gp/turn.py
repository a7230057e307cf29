"""One turn of one model: the evidence in its terms, its fits, and the candidates it thinks best.

Trials that failed and those still running count as if they came out as predicted; what failures
say of where trials fail is a model of its own, whose probability multiplies the acquisition.

Axes: T trials with a result, R rows (a trial has one at each step at which trials are judged),
P searched parameters, D model columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator

from searchers.gp.acquisition import Acquisition, LogExpectedImprovement
from searchers.gp.encoding import Encoding, Mask, Points, units
from searchers.gp.evidence import Evidence
from searchers.gp.feasibility import (
    Labels,
    LogProbabilityBelow,
    labels_of_failures,
    prior_of_labels,
)
from searchers.gp.fidelity import AtTop, with_context
from searchers.gp.fits import PROBE, Fit, Model, Outcome
from searchers.gp.kernels import Array
from searchers.gp.maximise import FRUGAL, THOROUGH, Candidates, Focus, Maximiser
from searchers.gp.model import Posterior, Prior, Rows
from searchers.gp.terms import Sum
from searchers.gp.warping import Standardized, standardized
from searchers.searcher import Observation
from searchers.space import Params, Space

OWN_SHARE = 0.3  # of the kernel, for the own effects of six parameters and more
OWN_ROWS = 80  # beyond which the joint kernel has learned own effects, and they cost too much
FEWEST = 3  # results in a category from which it is looked at by itself
FRUGAL_ABOVE = 80  # rows beyond which a candidate costs enough to score fewer
INCUMBENTS = 5
CAUTION = 8.0  # power of the chance that a trial does not fail: an optimum at the edge is a trap
LOSS, FAILURE = "loss", "failure"  # the outcomes, by their names in the notes

Process = Posterior | AtTop


@dataclass(frozen=True)
class Turn:
    """What one model is asked with."""

    space: Space
    encoding: Encoding
    model: Model
    warp: Standardized
    output_R: Array
    evidence: Evidence
    points: Points  # T trials with a result, then those that failed, then running ones
    focus: Focus | None = None  # where alone to look; None: everywhere
    rivals: Mask | None = None  # the points whose best is to be improved on; None: all

    @classmethod
    def of(cls, space: Space, model: Model, evidence: Evidence) -> "Turn":
        encoding = Encoding.of(space)
        everywhere = [*evidence.params, *evidence.failed, *evidence.pending]
        points = encoding.snap(units(space, everywhere))
        evidence = evidence.levelled(points.unit_NP)
        warp = standardized(model.warp, evidence.loss_R)
        output_R = warp.forward(evidence.loss_R)
        return cls(space, encoding, model, warp, output_R, evidence, points)

    def narrowed(self, focus: Focus) -> "Turn":
        """The turn that looks within one category, and improves on the best there.

        A warp of all losses tells those near the best of all apart; a category that is behind looks
        flat to it. So the losses there decide. With few of them it is left at the best of all.
        """
        rivals_N = focus.holds(self.points)
        if np.count_nonzero(rivals_N[: self._told]) < FEWEST:
            return replace(self, focus=focus)
        here_R = rivals_N[self.evidence.trial_R]
        warp = standardized(PROBE.warp, self.evidence.loss_R, self.evidence.loss_R[here_R])
        output_R = warp.forward(self.evidence.loss_R)
        return replace(
            self, model=PROBE, warp=warp, output_R=output_R, focus=focus, rivals=rivals_N
        )

    @cached_property
    def column_TD(self) -> Array:
        """Of the trials with a result."""
        return self.encoding.columns_of(self.points.take(range(self._told)))

    @cached_property
    def rows(self) -> Rows:
        """The losses as the model sees them, with a column for each context.

        With a context there are no own effects: they would hold at all steps alike (with ASHA on
        trained curves, log regret at 300 epochs was .037 lower without, 13 pairs).
        """
        x_RD = np.hstack([self.column_TD[self.evidence.trial_R], self.evidence.context_RC])
        contexts = self.encoding.parameters + np.arange(self._contexts)
        parameter_D = np.append(self.encoding.parameter_D, contexts)
        share = 0.0 if self._contexts else own_share(len(x_RD), self.encoding.parameters)
        return Rows(x_RD, self.output_R, parameter_D, share)

    @property
    def prior(self) -> Prior:
        """Of the model of the losses."""
        return with_context(self.model.prior(self.encoding.parameters), self._contexts)

    @property
    def _contexts(self) -> int:
        return int(self.evidence.context_RC.shape[1])

    @property
    def _told(self) -> int:
        return len(self.evidence.params)

    @property
    def _ended(self) -> int:
        return self._told + len(self.evidence.failed)

    def fitted(self, history: Sequence[Observation], trials: int, rng: Generator) -> Fit:
        """The fit of the losses; see `Outcome.fitted`."""
        first_R = self.output_R
        if self.rivals is not None:
            here_R = self.rivals[self.evidence.trial_R]
            first_R = np.where(here_R, first_R - np.ptp(first_R) - 1.0, first_R)
        losses = Outcome(self.outcome, self.model, self.rows, self.prior, first_R)
        return losses.fitted(history, trials, rng)

    @property
    def outcome(self) -> str:
        """What is fitted, by its name in the notes; within a category there is another warp."""
        if self.focus is None or self.rivals is None:
            return LOSS
        name = self.space.searched[self.focus.parameter]
        return f"{LOSS} where {name} is {self.space[name].from_unit(self.focus.unit)!r}"

    def posterior(self, fitted: Fit) -> Process:
        """Given the results; failed and running trials as they are predicted."""
        everywhere = Posterior.of(self.rows, fitted.hyperparameters)
        process: Process = everywhere
        if self._contexts:
            process = AtTop.of(everywhere, self.column_TD)
        expected = self.points.take(range(self._told, len(self.points)))
        return process.believe(self.encoding.columns_of(expected)) if len(expected) else process

    def chance(
        self, history: Sequence[Observation], rng: Generator
    ) -> tuple[LogProbabilityBelow, Fit] | None:
        """The probability that a trial does not fail; None: none has failed so far."""
        labels = labels_of_failures(np.arange(self._ended) >= self._told)
        if labels is None:
            return None
        x_ND = self.encoding.columns_of(self.points.take(range(self._ended)))
        failures = failures_of(self.model, self.encoding, x_ND, labels)
        posterior, fitted = failures.learned(history, self._ended, rng)
        return LogProbabilityBelow(posterior, labels.threshold, CAUTION), fitted

    def search(self, process: Process, terms: Sequence[Acquisition], rng: Generator) -> Candidates:
        """Scored candidates, the best first, old configurations among them.

        Args:
            process: the model of the loss, whose expected improvement is sought.
            terms: what is added to its logarithm.
            rng: for the candidates.
        """
        rivals_N = np.ones(len(self.points), dtype=np.bool_) if self.rivals is None else self.rivals
        told_T = np.flatnonzero(rivals_N[: self._told])
        lowest = told_T[np.argsort(process.fitted_N[told_T], kind="stable")[:INCUMBENTS]]
        # What a failed trial was predicted is no result to improve on.
        hoped_N = np.delete(rivals_N, np.s_[self._told : self._ended])
        best = np.delete(process.fitted_N, np.s_[self._told : self._ended])[hoped_N].min()
        acquisition: Acquisition = LogExpectedImprovement(process, float(best))
        if terms:
            acquisition = Sum((acquisition, *terms))
        effort = FRUGAL if len(self.output_R) > FRUGAL_ABOVE else THOROUGH
        maximiser = Maximiser(self.space, self.encoding, acquisition, self.focus, effort)
        return maximiser.search(self.points.unit_NP[lowest], rng)

    def least_visited(self) -> Focus | None:
        """The category of the smallest share, counted against its equals; None: no categories."""
        shares = list(self._shares())
        return min(shares, key=lambda pair: pair[0])[1] if shares else None

    def _shares(self) -> Iterator[tuple[int, Focus]]:
        for index, parameter in enumerate(self.encoding.searched):
            active_N = self.points.active_NP[:, index]
            if not parameter.categorical or not active_N.any():
                continue
            unit_N = self.points.unit_NP[active_N, index]
            for centre in parameter.centre_V.tolist():
                visits = int(np.count_nonzero(unit_N == centre))
                yield visits * parameter.width, Focus(index, centre)

    def predicted(self, process: Process, params: Params) -> tuple[float, float]:
        """Mean and deviation of the loss, in the user's units.

        The deviation is half of what lies between one standard deviation below and above.
        """
        x_MD = self.encoding.columns_of(self.encoding.snap(units(self.space, [params])))
        mean_M, variance_M = process.predict(x_MD)
        spread = np.sqrt(variance_M[0]) * np.array([-1.0, 0.0, 1.0])
        low, middle, high = self.warp.backward(mean_M[0] + spread).tolist()
        return middle, (high - low) / 2.0


def outcome_of(
    name: str, model: Model, encoding: Encoding, x_ND: Array, output_N: Array
) -> Outcome:
    """An outcome of configurations, for a model with its own prior; lowest outputs come first."""
    share = own_share(len(x_ND), encoding.parameters)
    rows = Rows(x_ND, output_N, encoding.parameter_D, share)
    return Outcome(name, model, rows, model.prior(encoding.parameters), output_N)


def failures_of(model: Model, encoding: Encoding, x_ND: Array, labels: Labels) -> Outcome:
    """Whether configurations fail; those that did come first."""
    failures = outcome_of(FAILURE, model, encoding, x_ND, labels.output_N)
    return replace(failures, prior=prior_of_labels(failures.prior), first_N=-labels.output_N)


def own_share(rows: int, parameters: int) -> float:
    """How much of the kernel is the parameters' own effects, with so many rows.

    Of few parameters the joint part learns as soon: Branin at 30 trials, 12 seeds, was off by .14
    at worst with the full share, by .02 with none.
    """
    return OWN_SHARE * min(1.0, (parameters - 1) / 5.0) if rows <= OWN_ROWS else 0.0
