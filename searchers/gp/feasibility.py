"""The probability that a trial ends with a usable result: it does not fail, it keeps a limit.

Failures are learned by least-squares classification: a process regressed on labels, 1 for failed
and 0 for not; failures without an explanation (a node's fault) go into its noise. Laplace's
approximation of a probit likelihood found no better configurations in closed loops (5 problems, 10
seeds), and would need a fit and gradients of its own.

Axes: N trials, M queries, D model columns.
Sources: Rasmussen & Williams (2006), section 6.5 (least-squares classification); Gelbart, Snoek &
Adams (UAI 2014) and Gardner et al. (ICML 2014) for the product with expected improvement.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from searchers.gp.acquisition import LOG_SQRT_2PI
from searchers.gp.encoding import Mask
from searchers.gp.kernels import Array
from searchers.gp.model import Posterior, Prior, with_noise
from searchers.gp.warping import MAX_LOSS, OUTLIER, Warp


@dataclass(frozen=True)
class Labels:
    """Outputs for a model, and the threshold that the outputs of good trials do not exceed."""

    output_N: Array
    threshold: float


def labels_of_failures(failed_N: Mask) -> Labels | None:
    """Return standardized labels, the threshold halfway between; None: all failed, or none did.

    Far from all trials the model then predicts the share of them that failed.
    """
    share = float(failed_N.mean()) if len(failed_N) else 0.0
    if share in (0.0, 1.0):
        return None
    deviation = math.sqrt(share * (1.0 - share))
    return Labels((failed_N.astype(np.float64) - share) / deviation, (0.5 - share) / deviation)


def labels_of_excess(warp: Callable[[Array], Warp], excess_N: Array) -> Labels:
    """Return the excess over a limit, warped as losses are and standardized, and what 0 maps to.

    Only what is far from 0 is clipped: trials on both sides of a limit never become alike.
    """
    size_N = np.minimum(np.abs(excess_N), MAX_LOSS)
    bound = OUTLIER * (float(np.median(size_N)) or float(size_N.max()) or 1.0)
    bounded_N = np.clip(excess_N, -bound, bound)
    fitted = warp(bounded_N)
    output_N, threshold = fitted.forward(bounded_N), float(fitted.forward(np.zeros(1))[0])
    centre, deviation = float(output_N.mean()), float(output_N.std())
    if deviation < 1e-12:
        deviation = 1.0
    threshold = float(np.clip((threshold - centre) / deviation, -OUTLIER, OUTLIER))
    return Labels((output_N - centre) / deviation, threshold)


def prior_of_labels(prior: Prior) -> Prior:
    """Return the prior with noise known to be large: part of any failure may be chance.

    Left to itself, a fit to 4 failures at random among 40 trials now and then explains them all,
    and closes regions with certainty (20 seeds: at worst, 5 % of the space below a probability of
    2e-4; with this prior, below 0.09). Sharp edges are found as well with this prior as without.
    """
    return with_noise(prior, math.log(0.2), 0.25)


@dataclass(frozen=True)
class LogProbabilityBelow:
    """log P(output <= threshold) under the posterior.

    The model's noise is included, so that certainty is never claimed.
    """

    posterior: Posterior
    threshold: float
    power: float = 1.0  # of the probability

    def __call__(self, x_MD: Array) -> Array:
        mean_M, variance_M = self.posterior.predict(x_MD)
        value_M: Array = log_ndtr((self.threshold - mean_M) / self._deviation(variance_M))
        return self.power * value_M

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        mean_M, variance_M, mean_slope_MD, variance_slope_MD = self.posterior.predict_with_gradient(
            x_MD
        )
        deviation_M = self._deviation(variance_M)
        z_M = (self.threshold - mean_M) / deviation_M
        value_M = log_ndtr(z_M)
        # phi(z) / Phi(z), which tends to -z in the lower tail, where both underflow.
        hazard_M = np.exp(-0.5 * z_M**2 - LOG_SQRT_2PI - value_M)
        deviation_slope_MD = variance_slope_MD / (2.0 * deviation_M[:, None])
        z_slope_MD = -(mean_slope_MD + z_M[:, None] * deviation_slope_MD) / deviation_M[:, None]
        return self.power * value_M, self.power * hazard_M[:, None] * z_slope_MD

    def _deviation(self, variance_M: Array) -> Array:
        return np.sqrt(variance_M + self.posterior.hyperparameters.noise)
