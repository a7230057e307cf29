"""Partial results in a model of the final loss: the step is an additional column.

A trial has a row at each step where it, or other trials, were judged: at its end, and at the
earlier steps at which trials end. So everything that a rung decided by is among the rows, and it is
no bias that only good trials have late rows: what is missing depends on what is there alone (Rubin,
Inference and Missing Data, Biometrika 63, 1976). The logarithm of the step has a lengthscale of its
own, and the model predicts at the highest step that a trial reached.

Axes: T trials of a history, R rows, M queries, D model columns without that of the step.
Sources: Klein et al., Model-based Asynchronous Hyperparameter and Neural Architecture Search
(2020), section 4: one process over configurations and rungs. Kandasamy et al., Multi-fidelity
Bayesian Optimisation with Continuous Approximations (ICML 2017), section 2: a product kernel. Here
the step adds to the distance of one kernel instead, which predicts as well
(benchmarks/gp-experiments.md).
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.random import Generator
from scipy.optimize import isotonic_regression

from searchers.fidelity import NO_FAULT, primary_loss
from searchers.gp.kernels import Array, Index
from searchers.gp.model import Posterior, Prior
from searchers.gp.warping import MAX_LOSS
from searchers.searcher import Observation

FACTOR = 27.0  # ratio of steps that are as far apart as the ends of a parameter's range
MIN_STEP_RATIO = 1.5  # least ratio between two steps at which all trials get rows
SAME_STOP = math.log(MIN_STEP_RATIO) / math.log(FACTOR)  # the same, as a distance of columns
MIN_STEP = 0.5  # stands for step 0, which has no logarithm


@dataclass(frozen=True)
class MultiFidelityRows:
    """The results of a history at every step where trials are judged."""

    trial_R: Index  # index of the row's trial in the history
    loss_R: Array  # NaN: the trial failed or diverged; see `on_highest_level`
    column_R: Array  # of the step: 0 at the highest, -1 at a FACTOR-th of it

    @classmethod
    def of(cls, history: Sequence[Observation]) -> "MultiFidelityRows":
        """Return rows in the order of the history, those of one trial by their steps.

        A failed trial has one row, at the highest step, unless the failure was not its fault. A
        result without a step counts as a result at the highest.
        """
        stops = _common_stops(history)
        row_R = [
            (index, *row)
            for index, seen in enumerate(history)
            for row in (*_rows(seen, stops), *seen.repeats)
        ]
        place_R, step_R, loss_R = np.array(row_R).reshape(-1, 3).T
        trial_R = place_R.astype(np.intp)
        top = np.max(step_R, initial=1.0, where=np.isfinite(step_R))
        column_R = np.log(np.clip(step_R, MIN_STEP, top) / top) / math.log(FACTOR)
        stop_R = np.searchsorted(stops, np.minimum(step_R, top))
        return cls(trial_R, on_highest_level(trial_R, stop_R, loss_R), column_R)


def on_highest_level(trial_R: Index, stop_R: Index, loss_R: Array) -> Array:
    """Return losses as if of the highest step, where losses rise with the step.

    There a loss of 1.4 at step 1 is no better than one of 4.5 at step 9. So from one stop to the
    next all losses are mapped as those of the trials that have both, and none of two trials gets
    ahead of the one that beat it. Where the losses of these trials fall, all stay as they are: a
    stopped trial then looks worse than it would have become, which leads nobody back to it.

    Args:
        trial_R: the trial of each row.
        stop_R: the stop of each row, from 0 up with the step.
        loss_R: NaN: there is none.
    """
    stops = int(np.max(stop_R, initial=0)) + 1
    loss_ST = np.full((stops, int(np.max(trial_R, initial=0)) + 1), np.nan)
    loss_ST[stop_R, trial_R] = np.clip(loss_R, -MAX_LOSS, MAX_LOSS)
    levelled_R = loss_R.copy()
    for stop, (here_T, later_T) in enumerate(pairwise(loss_ST)):
        both_T = np.isfinite(here_T) & np.isfinite(later_T)
        if both_T.any() and np.median(later_T[both_T] - here_T[both_T]) > 0.0:
            below_R = stop_R <= stop
            levelled_R[below_R] = _mapped(levelled_R[below_R], here_T[both_T], later_T[both_T])
    return levelled_R


def _mapped(loss_R: Array, here_P: Array, later_P: Array) -> Array:
    """Return losses mapped by the isotonic regression of P pairs, beyond them by differences."""
    order_P = np.lexsort((later_P, here_P))
    here_P, later_P = here_P[order_P], isotonic_regression(later_P[order_P]).x
    loss_R = np.clip(loss_R, -MAX_LOSS, MAX_LOSS)
    beyond_R = np.minimum(loss_R - here_P[0], 0.0) + np.maximum(loss_R - here_P[-1], 0.0)
    mapped_R: Array = np.interp(loss_R, here_P, later_P) + beyond_R
    return mapped_R


def _common_stops(history: Sequence[Observation]) -> list[int]:
    """Return the steps at which trials ended or wait, ascending; of close steps the higher."""
    ends = {seen.curve[-1][0] for seen in history if seen.state == "done" and seen.curve}
    stops: list[int] = []
    for step in sorted(ends, reverse=True):
        if not stops or MIN_STEP_RATIO * step <= stops[-1]:
            stops.append(step)
    return stops[::-1]


def _rows(seen: Observation, stops: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield step and loss of each row of a trial."""
    if seen.state == "failed" and seen.reason not in NO_FAULT:
        yield math.inf, math.nan
    elif seen.curve:
        for step, loss in _judged_reports(seen, stops):
            if math.isfinite(loss):
                yield step, loss
    elif seen.state == "done":
        end = primary_loss(seen)
        if end is not None and math.isfinite(end):
            yield math.inf, end


def _judged_reports(seen: Observation, stops: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Yield the last report up to each stop that the trial reached, and its final report."""
    last = -1
    for stop in stops[: bisect_right(stops, seen.curve[-1][0])]:
        index = bisect_right(seen.curve, stop, key=lambda report: report[0]) - 1
        if index > last:
            yield seen.curve[index]
            last = index
    if seen.state != "pending" and last < len(seen.curve) - 1:
        yield seen.curve[-1]


def with_context(prior: Prior, columns: int) -> Prior:
    """Return the prior for `columns` more columns, each with a lengthscale of log-normal(0, 1)."""
    position = len(prior.mean_T) - 2
    return Prior(
        np.insert(prior.mean_T, position, np.zeros(columns)),
        np.insert(prior.deviation_T, position, np.ones(columns)),
        np.insert(prior.start_T, position, np.zeros(columns)),
    )


@dataclass(frozen=True)
class AtMaxFidelity:
    """The predictions of a process for this sweep, at the highest step."""

    process: Posterior
    contexts: int  # context columns after those of a configuration, all 0 in queries
    fitted_N: Array  # mean of each trial, as if of this sweep at that step

    @classmethod
    def of(cls, process: Posterior, x_TD: Array) -> "AtMaxFidelity":
        contexts = len(process.inverse_D) - x_TD.shape[1]
        return cls(process, contexts, process.mean(_with_zero_context(x_TD, contexts)))

    def mean(self, x_MD: Array) -> Array:
        """See `Posterior.mean`."""
        return self.process.mean(_with_zero_context(x_MD, self.contexts))

    def predict(self, x_MD: Array) -> tuple[Array, Array]:
        """See `Posterior.predict`."""
        return self.process.predict(_with_zero_context(x_MD, self.contexts))

    def draw(self, x_MD: Array, draws: int, rng: Generator) -> Array:
        """See `Posterior.draw`."""
        return self.process.draw(_with_zero_context(x_MD, self.contexts), draws, rng)

    def predict_with_gradient(self, x_MD: Array) -> tuple[Array, Array, Array, Array]:
        """See `Posterior.predict_with_gradient`."""
        columns = x_MD.shape[1]
        mean_M, variance_M, mean_MD, variance_MD = self.process.predict_with_gradient(
            _with_zero_context(x_MD, self.contexts)
        )
        return mean_M, variance_M, mean_MD[:, :columns], variance_MD[:, :columns]

    def fantasize(self, x_KD: Array) -> "AtMaxFidelity":
        """See `Posterior.fantasize`: each new row comes out at its mean at the highest step."""
        process = self.process.fantasize(_with_zero_context(x_KD, self.contexts))
        fitted_N = np.append(self.fitted_N, process.fitted_N[-len(x_KD) :])
        return AtMaxFidelity(process, self.contexts, fitted_N)


def _with_zero_context(x_MD: Array, contexts: int) -> Array:
    return np.hstack([x_MD, np.zeros((len(x_MD), contexts))])
