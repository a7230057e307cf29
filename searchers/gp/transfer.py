"""Knowledge of earlier sweeps: how each parameter matters, and what to try first.

Each earlier sweep has a process of its own. Its lengthscales and noise (without early stopping) are
a prior of those of this sweep: how fast a loss changes along a parameter is alike from data set to
data set, also where its optimum is not. And one in four of the first trials is the configuration
that these processes expect to add most to those tried. Their predictions count for nothing else: as
a mean of this sweep's process they cost regret, weighted by how well they rank its results or not
(benchmarks/gp-experiments.md).

Axes: S earlier sweeps, M configurations, P searched parameters, T hyperparameters, K of them that
carry over: a lengthscale of each parameter, and the noise.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchers.gp.encoding import Encoding, Mask, units
from searchers.gp.fits import MODELS
from searchers.gp.kernels import Array
from searchers.gp.learned.prior import LearnedPrior
from searchers.gp.model import Prior
from searchers.gp.proposer import Process, Proposer
from searchers.gp.training_data import Evidence
from searchers.magnitudes import in_range
from searchers.searcher import TRIED, Observation
from searchers.space import Params, Space

DRAWN = 512  # configurations that are compared where earlier sweeps were of the same code
MIN_RESULTS = 10  # from which a sweep's hyperparameters tell more than their prior
LENGTHSCALES, NOISE = 0.3, 1.0  # deviations of logarithms from sweep to sweep, at the least


@dataclass(frozen=True)
class EarlierSweep:
    """A fitted process, whose predictions are in standard deviations of the sweep's losses.

    Attributes:
        process: of its losses, at the highest step.
        log_K: logarithms of the hyperparameters that carry over.
        known_K: which of them the sweep tells something of.
    """

    process: Process
    log_K: Array
    known_K: Mask

    @classmethod
    def of(
        cls, space: Space, trials: Sequence[Observation], rows: int, learned: LearnedPrior | None
    ) -> "EarlierSweep | None":
        """Return the sweep of some trials; None: they are too few for a model."""
        evidence = Evidence.of(in_range(trials))
        if not evidence.is_enough:
            return None
        proposer = Proposer.of(space, MODELS[0], evidence.bounded(rows), learned)
        # A fixed generator: a resumed sweep must fit the same process.
        fitted = proposer.fitted((), len(evidence.loss_R), np.random.default_rng(0))
        tried = len(proposer.evidence.params)
        varies_P = np.ptp(proposer.points.unit_NP[:tried], axis=0) > 0.0
        known_K = np.append(varies_P, True) & (tried >= MIN_RESULTS)
        log_K = fitted.hyperparameters.log_vector()[carried(space)]
        return cls(proposer.posterior(fitted), log_K, known_K)


@dataclass(frozen=True)
class EarlierSweeps:
    """Knowledge of earlier sweeps about a space."""

    space: Space
    sweeps: tuple[EarlierSweep, ...]  # those with enough results
    untried: tuple[Params, ...]  # configurations with a result, which here may be another one
    repeated: tuple[Params, ...]  # those whose result would be the same here

    @classmethod
    def of(
        cls,
        space: Space,
        earlier: Sequence[Observation],
        rows: int,
        learned: LearnedPrior | None,
    ) -> "EarlierSweeps":
        """Return the sweeps of earlier trials, whose ids are SWEEP/TRIAL."""
        trials: dict[str, list[Observation]] = {}
        for seen in earlier:
            trials.setdefault(seen.id.rpartition("/")[0], []).append(seen)
        fitted = [EarlierSweep.of(space, of, rows, learned) for of in trials.values()]
        done = [seen for seen in earlier if seen.state == "done" and TRIED not in seen.note]
        untried = tuple(seen.params for seen in done if space.allows(seen.params))
        repeated = tuple(seen.params for seen in earlier if TRIED in seen.note)
        return cls(space, tuple(sweep for sweep in fitted if sweep is not None), untried, repeated)

    def informed(self, prior: Prior) -> Prior:
        """Return the prior of a model, as the hyperparameters of the sweeps change it.

        A mean is the average over the sweeps that know it and the prior, which counts as one of
        them; a variance is that of these sweeps, plus a little.
        """
        kept = carried(self.space)
        log_SK = np.stack([sweep.log_K for sweep in self.sweeps])
        known_SK = np.stack([sweep.known_K for sweep in self.sweeps])
        count_K = known_SK.sum(axis=0)
        mean_K = (prior.mean_T[kept] + (log_SK * known_SK).sum(axis=0)) / (count_K + 1)
        square_K = ((log_SK - mean_K) ** 2 * known_SK).sum(axis=0)
        least_K = np.append(np.full(len(kept) - 1, LENGTHSCALES), NOISE)
        deviation_K = np.sqrt(square_K / np.maximum(count_K, 1) + least_K**2)
        told = Prior(prior.mean_T.copy(), prior.deviation_T.copy(), prior.start_T.copy())
        told.mean_T[kept] = np.where(count_K, mean_K, prior.mean_T[kept])
        told.start_T[kept] = np.where(count_K, mean_K, prior.start_T[kept])
        told.deviation_T[kept] = np.where(count_K, deviation_K, prior.deviation_T[kept])
        return told

    def best_first(self, tried: Sequence[Params]) -> Iterator[Params]:
        """Yield configurations with a result elsewhere, then others; each time the best come first.

        A configuration is worth, in each sweep, what its predicted loss is below the lowest of
        those tried, or below the sweep's average if none is; these are averaged.
        """
        best_S = self._predicted(tried).min(axis=0, initial=0.0)
        for configurations in (self.untried, self._drawn):
            expected_M = np.minimum(self._predicted(configurations), best_S).mean(axis=1)
            for index in np.argsort(expected_M, kind="stable"):
                yield configurations[index]

    @cached_property
    def _drawn(self) -> Sequence[Params]:
        return self.space.sample_related(DRAWN, np.random.default_rng(0))

    def _predicted(self, configurations: Sequence[Params]) -> Array:
        """Return the losses that the sweeps predict, M x S."""
        encoding = Encoding.of(self.space)
        x_MD = encoding.columns_of(encoding.snap(units(self.space, configurations)))
        return np.stack([sweep.process.mean(x_MD) for sweep in self.sweeps], axis=1)


def carried(space: Space) -> list[int]:
    """Return the places of the hyperparameters that carry over from sweep to sweep.

    Lengthscales of steps, if there are any, stand between those of parameters and the noise.
    """
    return [*range(len(space.searched)), -2]
