"""A process whose mean is what is known beforehand, as far as the results bear it out.

The outputs are beta times the learned prior's mean, plus a Gaussian process. The coefficient beta
says how much of the mean holds for this problem; a wrong one gets one near 0.

Axes: N rows, M queries, K appended rows, D model columns.
Source: Rasmussen & Williams (2006), section 2.7 (explicit basis functions).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from searchers.gp.fidelity import AtMaxFidelity
from searchers.gp.kernels import Array
from searchers.gp.learned.prior import Mean
from searchers.gp.model import Posterior

TRUST, DOUBT = 0.7, 1.0  # mean and deviation of the prior's beta before there are results
UNFITTED_VARIANCE = 0.5  # of what the prior leaves over, before the process is fitted


def coefficient(mean_N: Array, output_N: Array, solve: Callable[[Array], Array]) -> float:
    """Return a cautious beta: a deviation below its most probable value, and not negative.

    The mirror image of a prior is half right, as valleys are valleys. With the most probable beta
    it cost a fifth more regret at 30 trials, with this one nothing (benchmarks/gp-experiments.md).

    Args:
        mean_N: the prior's mean at the rows.
        output_N: their outputs.
        solve: multiplies by the inverse covariance of the rows.
    """
    weighted_N = solve(mean_N)
    precision = 1.0 / DOUBT**2 + mean_N @ weighted_N
    expected = (TRUST / DOUBT**2 + weighted_N @ output_N) / precision
    return max(0.0, float(expected - precision**-0.5))


def solve_unfitted(values_N: Array) -> Array:
    """Multiply by the inverse covariance of rows before the process is fitted."""
    return values_N / UNFITTED_VARIANCE


@dataclass(frozen=True)
class WithMean:
    """The sum of a process and a function.

    Attributes:
        process: of what that function leaves over.
        function: what is known beforehand, times beta.
        fitted_N: the mean of the sum at the rows of the process.
    """

    process: Posterior | AtMaxFidelity
    function: Mean
    beta: float
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
