"""Terms of an acquisition, in logarithms: their sum, and the cost of a trial.

Axes: M queries, D model columns.
"""

from dataclasses import dataclass

import numpy as np

from searchers.gp.acquisition import Acquisition
from searchers.gp.kernels import Array
from searchers.gp.model import Posterior


@dataclass(frozen=True)
class Sum:
    """The sum of terms in logarithms, so the product of the terms; without terms it is 0."""

    terms: tuple[Acquisition, ...]

    def __call__(self, x_MD: Array) -> Array:
        value_M = np.zeros(len(x_MD))
        for term in self.terms:
            value_M += term(x_MD)
        return value_M

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        value_M, gradient_MD = np.zeros(len(x_MD)), np.zeros(x_MD.shape)
        for term in self.terms:
            term_M, slope_MD = term.with_gradient(x_MD)
            value_M += term_M
            gradient_MD += slope_MD
        return value_M, gradient_MD


@dataclass(frozen=True)
class LogCost:
    """Minus the predicted logarithm of the seconds that a trial takes, up to a constant.

    Added to a log expected improvement, this gives the log of the improvement per second.

    Attributes:
        posterior: of log(seconds), standardized.
        deviation: by which log(seconds) was divided to standardize it.

    Source: Snoek, Larochelle & Adams, Practical Bayesian Optimization (NIPS 2012), section 3.2.
    """

    posterior: Posterior
    deviation: float

    def __call__(self, x_MD: Array) -> Array:
        mean_M, _ = self.posterior.predict(x_MD)
        return -self.deviation * mean_M

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        mean_M, _, slope_MD, _ = self.posterior.predict_with_gradient(x_MD)
        return -self.deviation * mean_M, -self.deviation * slope_MD
