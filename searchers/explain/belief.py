"""The prediction of the two models of `gp` together, in the user's units.

The models take turns in proposing, so neither is right alone: the belief is their mixture in equal
parts. They are fitted as the searcher's next turn would fit them, though never to logarithms, and
predict the result of a trial at the highest step; failed and running trials are left out.

Axes: R rows of the models, M queries, D model columns, P searched parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from searchers.gp.encoding import Encoding, Points
from searchers.gp.fits import MODELS
from searchers.gp.kernels import Array
from searchers.gp.proposer import Process, Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.gp.warping import MAX_LOSS, Standardized
from searchers.searcher import Observation
from searchers.space import Space

ROWS = GaussianProcess.rows  # results given to the models
CHUNK = 4096  # queries at once: memory stays at ROWS x CHUNK numbers


@dataclass(frozen=True)
class View:
    """A model of the mixture, with its warp and lengthscales."""

    process: Process
    warp: Standardized
    lengthscale_P: Array


@dataclass(frozen=True)
class Belief:
    """An equal mixture of the models, for points of one encoding."""

    encoding: Encoding
    views: tuple[View, ...]
    lowest: float  # the lowest loss that the models saw
    span: float  # from the lowest to the highest loss; 1 where all are equal

    @classmethod
    def of(cls, space: Space, history: Sequence[Observation]) -> "Belief":
        """Fit the models to a history.

        Raises:
            ValueError: the space has nothing to search, or too few trials have a result.
        """
        evidence = Evidence.of(history)
        _check(space, evidence, len(history))
        results = replace(evidence.bounded(ROWS), failed=[], pending=[])
        rng = np.random.default_rng(0)
        views = []
        for model in MODELS:
            proposer = Proposer.of(space, model, results)
            fitted = proposer.fitted(history, len(evidence.loss_R), rng)
            lengthscale_P = np.array(fitted.hyperparameters.lengthscales[: len(space.searched)])
            views.append(View(proposer.posterior(fitted), proposer.warp, lengthscale_P))
        seen_R = np.clip(results.loss_R, -MAX_LOSS, views[0].warp.ceiling)
        span = float(np.ptp(seen_R)) or 1.0
        return cls(Encoding.of(space), tuple(views), float(seen_R.min()), span)

    def mean(self, points: Points) -> Array:
        """Return the predicted loss (M) at each point."""
        chunks = [self._mean_share(chunk_MD) for chunk_MD in self._chunks(points)]
        return self.lowest + self.span * np.concatenate(chunks)

    def predict(self, points: Points) -> tuple[Array, Array]:
        """Return the mean and deviation (M each) of the noise-free loss at each point.

        A model's deviation is half the distance between one standard deviation below and above its
        mean; the mixture's deviation adds how far the models' means lie apart.
        """
        chunks = [self._mixture(chunk_MD) for chunk_MD in self._chunks(points)]
        mean_M, deviation_M = np.hstack(chunks)
        return self.lowest + self.span * mean_M, self.span * deviation_M

    def draw(self, points: Points, draws: int, rng: Generator) -> Array:
        """Return losses (S x M) of functions that the models hold possible, half of each model.

        Args:
            points: some two thousand at most, as the time is cubic in their number.
            draws: functions of each model.
        """
        x_MD = self.encoding.columns_of(points)
        shares = [
            self._share_of_span(view, view.process.draw(x_MD, draws, rng)) for view in self.views
        ]
        losses_SM: Array = self.lowest + self.span * np.vstack(shares)
        return losses_SM

    def _chunks(self, points: Points) -> list[Array]:
        x_MD = self.encoding.columns_of(points)
        return np.split(x_MD, range(CHUNK, len(x_MD), CHUNK))

    def _mean_share(self, x_MD: Array) -> Array:
        """Return the mean as a share of the span."""
        levels = [self._share_of_span(view, view.process.mean(x_MD)) for view in self.views]
        mean_M: Array = np.mean(levels, axis=0)
        return mean_M

    def _mixture(self, x_MD: Array) -> tuple[Array, Array]:
        """Return mean and deviation as shares of the span.

        In these units squares neither over- nor underflow.
        """
        means, variances = [], []
        for view in self.views:
            mean_M, variance_M = view.process.predict(x_MD)
            low_M = self._share_of_span(view, mean_M - np.sqrt(variance_M))
            high_M = self._share_of_span(view, mean_M + np.sqrt(variance_M))
            means.append(self._share_of_span(view, mean_M))
            variances.append(0.25 * (high_M - low_M) ** 2)
        return np.mean(means, axis=0), np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))

    def _share_of_span(self, view: View, output_M: Array) -> Array:
        """Return outputs of a model as losses, 0 at the lowest seen and 1 at the highest.

        Clipped to -1 and 2, as the inverse of a warp may explode a little beyond the seen losses.
        """
        return np.clip((view.warp.backward(output_M) - self.lowest) / self.span, -1.0, 2.0)


def _check(space: Space, evidence: Evidence, trials: int) -> None:
    if not space.searched:
        raise ValueError("explain: the space has constants alone; search at least one parameter")
    if not evidence.is_enough:
        raise ValueError(
            f"explain: {len(evidence.params)} of {trials} trials have a result, "
            f"{len(evidence.failed)} failed; a model needs 2 results and 3 trials in all"
        )
