"""The logarithm of expected improvement, whose gradient does not vanish where the loss is high.

Axes: M queries, D model columns. Losses are standardized; smaller is better.
Source: Ament et al., Unexpected Improvements to Expected Improvement (NeurIPS 2023), section 4.1.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import erfcx, ndtr

from searchers.gp.kernels import Array

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
# Below this z, 1 + z Mills(z) loses more digits to cancellation than its series to truncation.
SERIES_BELOW = -200.0


def log_h(z_M: Array) -> tuple[Array, Array]:
    """Return log(phi(z) + z Phi(z)) and its derivative, to about 11 digits for any finite z.

    phi and Phi are the standard normal density and distribution. Below -1 the value is log phi(z) +
    log(1 + z Mills(z)), with Mills(z) = Phi(z) / phi(z) by the scaled erfc.
    """
    low_M = np.minimum(z_M, -1.0)
    mills_M = math.sqrt(math.pi / 2.0) * erfcx(-low_M / math.sqrt(2.0))
    u_M = low_M**-2.0
    series_M = u_M * (1.0 - 3.0 * u_M * (1.0 - 5.0 * u_M))
    share_M = np.where(low_M < SERIES_BELOW, series_M, 1.0 + low_M * mills_M)
    low_value_M = np.log(share_M) - 0.5 * low_M**2 - LOG_SQRT_2PI

    high_M = np.maximum(z_M, -1.0)
    above_M = ndtr(high_M)
    h_M = np.exp(-0.5 * high_M**2 - LOG_SQRT_2PI) + high_M * above_M
    is_low_M = z_M < -1.0
    return (
        np.where(is_low_M, low_value_M, np.log(h_M)),
        np.where(is_low_M, mills_M / share_M, above_M / h_M),
    )


class Predictive(Protocol):
    """A process that predicts at points: a `Posterior`, or one asked at the highest step alone."""

    @property
    def fitted_N(self) -> Array:
        """Posterior mean of each trial that the process was given."""
        ...

    def predict(self, x_MD: Array) -> tuple[Array, Array]:
        """Return the mean and variance of each query."""
        ...

    def predict_with_gradient(self, x_MD: Array) -> tuple[Array, Array, Array, Array]:
        """Return mean, variance, and their gradients with respect to the queries."""
        ...


class Acquisition(Protocol):
    """The value of trying each query."""

    def __call__(self, x_MD: Array) -> Array:
        """Return the value of each query."""
        ...

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        """Return the value of each query, and its gradient with respect to that query (MD)."""
        ...


@dataclass(frozen=True)
class LogExpectedImprovement:
    """log E[max(best - loss, 0)] under the posterior; `best` is the smallest posterior mean."""

    posterior: Predictive
    best: float

    def __call__(self, x_MD: Array) -> Array:
        mean_M, variance_M = self.posterior.predict(x_MD)
        deviation_M = np.sqrt(variance_M)
        value_M: Array = np.log(deviation_M) + log_h((self.best - mean_M) / deviation_M)[0]
        return value_M

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        mean_M, variance_M, mean_slope_MD, variance_slope_MD = self.posterior.predict_with_gradient(
            x_MD
        )
        deviation_M = np.sqrt(variance_M)
        z_M = (self.best - mean_M) / deviation_M
        h_M, h_slope_M = log_h(z_M)
        deviation_slope_MD = variance_slope_MD / (2.0 * deviation_M[:, None])
        z_slope_MD = -(mean_slope_MD + z_M[:, None] * deviation_slope_MD) / deviation_M[:, None]
        gradient_MD = deviation_slope_MD / deviation_M[:, None] + h_slope_M[:, None] * z_slope_MD
        return np.log(deviation_M) + h_M, gradient_MD
