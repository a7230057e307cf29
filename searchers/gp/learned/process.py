"""A process whose mean is the learned prior, as far as the results bear it out.

The outputs are beta m(x) + g(x), with m the prior's mean and g the Gaussian process. One
coefficient beta says how much of the prior holds for this problem; a wrong prior gets one near 0.

Axes: N rows, M queries, K appended rows, D model columns.
Source: Rasmussen & Williams (2006), section 2.7 (explicit basis functions), with one function.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from searchers.gp.fidelity import AtMaxFidelity
from searchers.gp.kernels import Array
from searchers.gp.learned.prior import Mean
from searchers.gp.model import Posterior

TRUST, DOUBT = 0.7, 1.0  # mean and deviation of beta before there are results
UNFITTED_VARIANCE = 0.5  # of what the prior leaves over, before the process is fitted


def coefficient(mean_N: Array, output_N: Array, solve: Callable[[Array], Array]) -> float:
    """Return a cautious beta: a deviation below its most probable value, and not negative.

    The mirror image of a prior is half right, as valleys are valleys. With the most probable beta
    it cost a fifth more regret at 30 trials, with this one nothing (docs/gp.md).

    Args:
        mean_N: the prior's mean at the rows.
        output_N: their outputs.
        solve: multiplies by the inverse covariance of the rows.
    """
    weighted_N = solve(mean_N)
    precision = 1.0 / DOUBT**2 + mean_N @ weighted_N
    expected = (TRUST / DOUBT**2 + weighted_N @ output_N) / precision
    return max(0.0, float(expected - precision**-0.5))


def unfitted(mean_N: Array, output_N: Array) -> float:
    """Return beta before the process is fitted, as if it were noise."""
    return coefficient(mean_N, output_N, lambda mean_N: mean_N / UNFITTED_VARIANCE)


@dataclass(frozen=True)
class WithMean:
    """The sum of a process and a function, which is `weight` times the prior's mean.

    Attributes:
        process: of what that function leaves over.
        function: see `Mean.scaled`.
        weight: see `coefficient`.
        fitted_N: the mean of the sum at the rows of the process.
    """

    process: Posterior | AtMaxFidelity
    function: Mean
    weight: float
    fitted_N: Array

    def mean(self, x_MD: Array) -> Array:
        """See `Posterior.mean`."""
        return self.process.mean(x_MD) + self.function(x_MD)

    def predict(self, x_MD: Array) -> tuple[Array, Array]:
        """See `Posterior.predict`."""
        mean_M, variance_M = self.process.predict(x_MD)
        return mean_M + self.function(x_MD), variance_M

    def draw(self, x_MD: Array, draws: int, rng: Generator) -> Array:
        """See `Posterior.draw`."""
        return self.process.draw(x_MD, draws, rng) + self.function(x_MD)

    def predict_with_gradient(self, x_MD: Array) -> tuple[Array, Array, Array, Array]:
        """See `Posterior.predict_with_gradient`."""
        mean_M, variance_M, mean_MD, variance_MD = self.process.predict_with_gradient(x_MD)
        value_M, slope_MD = self.function.with_gradient(x_MD)
        return mean_M + value_M, variance_M, mean_MD + slope_MD, variance_MD

    def fantasize(self, x_KD: Array) -> "WithMean":
        """See `Posterior.fantasize`."""
        process = self.process.fantasize(x_KD)
        added_K = process.fitted_N[-len(x_KD) :] + self.function(x_KD)
        return replace(self, process=process, fitted_N=np.append(self.fitted_N, added_K))
