"""One turn of one model: the evidence in its terms, its fit, and the candidates it thinks best.

Axes: N trials with a result, K pending trials, P searched parameters, D model columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from searchers.gp.acquisition import LogExpectedImprovement
from searchers.gp.encoding import Encoding, Points, units
from searchers.gp.evidence import Evidence, best_and_random
from searchers.gp.fits import Fit, Model
from searchers.gp.kernels import Array
from searchers.gp.maximise import FRUGAL, THOROUGH, Candidates, Focus, Maximiser
from searchers.gp.model import Posterior, Rows, fit
from searchers.gp.warping import Standardized, standardized
from searchers.space import Params, Space

FIT_ROWS = 256  # a fit costs O(rows^3) some fifty times; more rows change it little
FRUGAL_ABOVE = 400  # rows beyond which a candidate costs enough to score fewer
INCUMBENTS = 5


@dataclass(frozen=True)
class Turn:
    """What one model is asked with."""

    space: Space
    encoding: Encoding
    model: Model
    warp: Standardized
    output_N: Array
    points: Points  # N trials with a result, then K pending ones

    @classmethod
    def of(cls, space: Space, model: Model, evidence: Evidence) -> "Turn":
        encoding = Encoding.of(space)
        warp = standardized(model.warp, evidence.loss_N[np.isfinite(evidence.loss_N)])
        points = encoding.snap(units(space, [*evidence.params, *evidence.pending]))
        return cls(space, encoding, model, warp, _outputs(warp, evidence.loss_N), points)

    @property
    def rows(self) -> Rows:
        told = self.points.take(np.arange(len(self.output_N)))
        return Rows(self.encoding.columns_of(told), self.output_N, self.encoding.parameter_D)

    def fitted(self, last: Fit | None, trials: int, rng: Generator) -> Fit:
        """The last fit while no new one is due, else one that starts from it.

        Args:
            last: of the same model; None: there was none.
            trials: how many there are, of which the rows may be a part.
        """
        if last is not None and not last.is_due(trials):
            return last
        rows = self.rows.take(best_and_random(self.output_N, FIT_ROWS, rng))
        start = None if last is None else last.hyperparameters
        prior = self.model.prior(self.encoding.parameters)
        return Fit(fit(rows, prior, start, rng), trials)

    def posterior(self, fitted: Fit) -> Posterior:
        """Given the results, and pending trials as they are predicted."""
        posterior = Posterior.of(self.rows, fitted.hyperparameters)
        pending = self.points.take(np.arange(len(self.output_N), len(self.points)))
        return posterior.believe(self.encoding.columns_of(pending)) if len(pending) else posterior

    def search(self, posterior: Posterior, focus: Focus | None, rng: Generator) -> Candidates:
        """Scored candidates, the best first, old configurations among them."""
        effort = FRUGAL if len(posterior.fitted_N) > FRUGAL_ABOVE else THOROUGH
        acquisition = LogExpectedImprovement.of(posterior)
        lowest = np.argsort(posterior.fitted_N, kind="stable")[:INCUMBENTS]
        maximiser = Maximiser(self.space, self.encoding, acquisition, focus, effort)
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

    def predicted(self, posterior: Posterior, params: Params) -> tuple[float, float]:
        """Mean and deviation of the loss, in the user's units.

        The deviation is half of what lies between one standard deviation below and above.
        """
        x_MD = self.encoding.columns_of(self.encoding.snap(units(self.space, [params])))
        mean_M, variance_M = posterior.predict(x_MD)
        spread = np.sqrt(variance_M[0]) * np.array([-1.0, 0.0, 1.0])
        low, middle, high = self.warp.backward(mean_M[0] + spread).tolist()
        return middle, (high - low) / 2.0


def _outputs(warp: Standardized, loss_N: Array) -> Array:
    """What the model is fitted to: failed trials are as bad as the worst, and worse than most."""
    is_known_N = np.isfinite(loss_N)
    known = warp.forward(loss_N[is_known_N])
    output_N = np.full(len(loss_N), max(float(known.max()), 1.0))
    output_N[is_known_N] = known
    return output_N
