"""Scaling laws: how a loss falls with weights and data, fitted to a sweep's trials.

L(N, D) = E + A / N^alpha + B / D^beta, with N weights and D samples (tokens, for a language model).
Source: Hoffmann et al., Training Compute-Optimal Large Language Models (2022), equation 2 and
section 3.3 with appendix D.2: Huber's loss of log L, L-BFGS from a grid of starts. In one variable
this is the law of Kaplan et al., Scaling Laws for Neural Language Models (2020), section 1.2, with
a floor E. Intervals: the percentile bootstrap over points, Efron & Tibshirani (1993), section 13.3.

Axes: P points, T coefficients, R resamples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from hposvc.estimate import Estimate

Array = NDArray[np.float64]

HUBER = 1e-3  # as in the paper: beyond it a point counts linearly
# Starts: the paper's grid, coarser, of log E and exponents; log A and log B follow from the data.
FLOORS = (-1.0, 0.0, 0.5)
EXPONENTS = (0.2, 0.5, 1.0)
EXPONENT_BOUNDS = (1e-3, 5.0)  # beyond them a resample of noise ends in overflow
MAX_LOG_DISTANCE = 20.0  # between the log of a term of the law and the logs of the losses
RESAMPLES = 100
# The coefficient and the exponent of each variable.
VARIABLES = {"weights": ("a", "alpha"), "samples": ("b", "beta")}
MIN_VALUES = 3  # different N, or D, needed to tell an exponent from a floor
FLOPS = 6  # per weight and token, forward and backward; Kaplan et al., section 2.1


class TooFew(ValueError):
    """An error for points that no law can be fitted to; the message says what is missing."""


@dataclass(frozen=True)
class ScalePoint:
    """The sizes and the loss of a trial."""

    weights: float
    samples: float
    loss: float


@dataclass(frozen=True)
class Law:
    """The coefficients of a law; A and alpha, or B and beta, are 0 if N, or D, did not vary."""

    floor: float  # E: the loss that no model goes below
    a: float
    alpha: float
    b: float
    beta: float

    def loss(self, weights: float, samples: float) -> float:
        """Return the loss that the law predicts."""
        return self.floor + _term(self.a, weights, self.alpha) + _term(self.b, samples, self.beta)

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return the weights and samples with the least loss for a budget of 6 N D; equation 4.

        Raises:
            ValueError: the law has one variable only.
        """
        if not (self.alpha and self.beta):
            raise ValueError(
                "the law has one variable, so there is no trade-off; vary both weights and data"
            )
        ratio = (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))
        weights = ratio * (flops / FLOPS) ** (self.beta / (self.alpha + self.beta))
        return weights, flops / FLOPS / weights


@dataclass(frozen=True)
class Fit:
    """A fitted law, with an interval for each of its coefficients."""

    law: Law
    coefficients: Mapping[str, Estimate]  # by the names of the law's fields
    laws: tuple[Law, ...]  # of the resamples
    points: tuple[ScalePoint, ...]

    def optimum(self, flops: float) -> tuple[Estimate, Estimate]:
        """Return the weights and samples with the least loss for a budget; see `Law.optimum`."""
        best = self.law.optimum(flops)
        optima = [law.optimum(flops) for law in self.laws if law.alpha and law.beta]
        weights, samples = map(Estimate.of_draws, zip(*optima, strict=True), best)
        return weights, samples


def fit(points: Sequence[ScalePoint], seed: int = 0, resamples: int = RESAMPLES) -> Fit:
    """Fit a law to points; of several points with equal weights and samples the best counts.

    Raises:
        TooFew: there are too few points, or too few different ones.
    """
    best = frontier(points)
    varied = check(best)
    law = _minimize(best, varied, None)
    rng = np.random.default_rng(seed)
    laws: list[Law] = []
    while len(laws) < resamples:
        drawn = [best[at] for at in rng.integers(len(best), size=len(best))]
        if all(len({getattr(point, name) for point in drawn}) >= MIN_VALUES for name in varied):
            laws.append(_minimize(drawn, varied, law))
    coefficients = {
        name: Estimate.of_draws([getattr(resampled, name) for resampled in laws], value)
        for name, value in vars(law).items()
    }
    return Fit(law, coefficients, tuple(laws), tuple(best))


def frontier(points: Sequence[ScalePoint]) -> list[ScalePoint]:
    """Return the best point for each pair of sizes, among finite and positive losses."""
    best: dict[tuple[float, float], ScalePoint] = {}
    for point in points:
        if 0 < point.loss < math.inf:
            key = (point.weights, point.samples)
            best[key] = min(best.get(key, point), point, key=lambda either: either.loss)
    return [best[key] for key in sorted(best)]


def check(points: Sequence[ScalePoint]) -> list[str]:
    """Return which of weights and samples vary enough to fit their exponent.

    Raises:
        TooFew: neither varies enough, or there are fewer points than coefficients plus one.
    """
    counts = {name: len({getattr(point, name) for point in points}) for name in VARIABLES}
    varied = [name for name, count in counts.items() if count >= MIN_VALUES]
    varying = ", ".join(f"{count} different {name}" for name, count in counts.items())
    if not varied:
        raise TooFew(
            f"{len(points)} points with {varying}; a law needs {MIN_VALUES} different values of "
            "one of them at least, so vary the model's size, or how long it is trained"
        )
    needed = 2 + 2 * len(varied)
    if len(points) < needed:
        raise TooFew(f"{len(points)} points with {varying}; this law needs {needed} or more")
    return varied


def _minimize(points: Sequence[ScalePoint], varied: Sequence[str], start: Law | None) -> Law:
    """Return the law with the least Huber loss, from a grid of starts or from a law nearby."""
    logs_PV = np.log([[getattr(point, name) for name in varied] for point in points])
    # Centred on the data, a coefficient depends little on its exponent, so the fit finds both.
    middle_V = logs_PV.mean(axis=0)
    target_P = np.log([point.loss for point in points])
    starts = (
        _starts(target_P, len(varied)) if start is None else [_to_theta(start, varied, middle_V)]
    )
    around = (float(target_P.min()) - MAX_LOG_DISTANCE, float(target_P.max()) + MAX_LOG_DISTANCE)
    bounds = [*[around] * (1 + len(varied)), *[EXPONENT_BOUNDS] * len(varied)]
    options: dict[str, Any] = {"method": "L-BFGS-B", "jac": True, "bounds": bounds}
    results = [
        minimize(_objective, first_T, (logs_PV - middle_V, target_P), **options)
        for first_T in starts
    ]
    best_T = min(results, key=lambda result: float(result.fun)).x
    return _from_theta(best_T, varied, middle_V)


def _objective(theta_T: Array, logs_PV: Array, target_P: Array) -> tuple[float, Array]:
    """Return the summed Huber losses of log L, and the gradient; theta: log E, log A.., alpha..."""
    variables = logs_PV.shape[1]
    heights_V, exponents_V = theta_T[1 : 1 + variables], theta_T[1 + variables :]
    terms_PK = np.column_stack(
        [np.full(len(target_P), theta_T[0]), heights_V - exponents_V * logs_PV]
    )
    predicted_P = logsumexp(terms_PK, axis=1)
    residual_P = predicted_P - target_P
    inside_P = np.abs(residual_P) <= HUBER
    losses_P = np.where(inside_P, residual_P**2 / 2, HUBER * (np.abs(residual_P) - HUBER / 2))
    shares_PK = np.exp(terms_PK - predicted_P[:, None])
    pull_P = np.clip(residual_P, -HUBER, HUBER)
    grad_heights_K = pull_P @ shares_PK
    grad_exponents_V = -(pull_P[:, None] * shares_PK[:, 1:] * logs_PV).sum(axis=0)
    # L-BFGS stops at small gradients; with residuals of 1e-3 they are small from the start.
    scale = 1 / HUBER**2
    return float(losses_P.sum() * scale), np.concatenate([grad_heights_K, grad_exponents_V]) * scale


def _starts(target_P: Array, variables: int) -> list[Array]:
    low, span = float(target_P.min()), max(float(np.ptp(target_P)), 1e-3)
    height = low + math.log(span)
    return [
        np.array([low + floor * span - span, *([height] * variables), *exponents])
        for floor in FLOORS
        for exponents in product(EXPONENTS, repeat=variables)
    ]


def _to_theta(law: Law, varied: Sequence[str], middle_V: Array) -> Array:
    values = vars(law)
    coefficients_V, exponents_V = np.array(
        [[values[name] for name in VARIABLES[variable]] for variable in varied]
    ).T
    heights_V = np.log(coefficients_V) - exponents_V * middle_V
    return np.array([math.log(law.floor), *heights_V, *exponents_V])


def _from_theta(theta_T: Array, varied: Sequence[str], middle_V: Array) -> Law:
    heights_V, exponents_V = np.split(theta_T[1:], 2)
    values: dict[str, float] = {}
    for place, variable in enumerate(varied):
        coefficient, power = VARIABLES[variable]
        values[coefficient] = math.exp(heights_V[place] + exponents_V[place] * middle_V[place])
        values[power] = float(exponents_V[place])
    return replace(Law(math.exp(theta_T[0]), 0.0, 0.0, 0.0, 0.0), **values)


def _term(coefficient: float, size: float, exponent: float) -> float:
    return coefficient / size**exponent if coefficient else 0.0
