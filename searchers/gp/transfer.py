"""What earlier sweeps tell: how each parameter matters, and which configurations to try first.

Each earlier sweep has a process of its own. Its lengthscales and noise are a prior of those of this
sweep: how fast a loss changes along a parameter is alike from data set to data set, also where its
optimum is not. And now and then, until there is a model, a trial is the configuration that these
processes expect to add most to those tried. Their predictions count for nothing else: as a mean of
this sweep's process they cost regret, weighted by how well they rank its results or not
(benchmarks/gp-experiments.md).

Axes: S earlier sweeps, M configurations, P searched parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from searchers.gp.encoding import Encoding, units
from searchers.gp.fits import MODELS
from searchers.gp.kernels import Array
from searchers.gp.learned.prior import LearnedPrior
from searchers.gp.model import Hyperparameters, Prior
from searchers.gp.proposer import Process, Proposer
from searchers.gp.training_data import Evidence
from searchers.magnitudes import in_range
from searchers.searcher import TRIED, Observation
from searchers.space import Params, Space

DRAWN = 512  # configurations that are compared where earlier sweeps were of the same code
LENGTHSCALES, NOISE = 0.3, 1.0  # deviations of logarithms from sweep to sweep, at the least


@dataclass(frozen=True)
class EarlierSweep:
    """A fitted process, whose predictions are in standard deviations of the sweep's losses."""

    process: Process
    hyperparameters: Hyperparameters

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
        return cls(proposer.posterior(fitted), fitted.hyperparameters)


@dataclass(frozen=True)
class EarlierSweeps:
    """What earlier sweeps tell about a space."""

    space: Space
    sweeps: tuple[EarlierSweep, ...]  # those with enough results
    untried: tuple[Params, ...]  # configurations with a result, which here may be another one

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
        return cls(space, tuple(sweep for sweep in fitted if sweep is not None), untried)

    def informed(self, prior: Prior) -> Prior:
        """Return the prior of a model, as the hyperparameters of the sweeps change it.

        A parameter's mean is the average over the sweeps and the prior, which counts as one; its
        variance is that of the sweeps, plus a little.
        """
        parameters = len(self.space.searched)
        # Those of the steps, if there are any, stand between lengthscales and noise.
        kept = [*range(parameters), -2]
        log_ST = np.array([each.hyperparameters.log_vector()[kept] for each in self.sweeps])
        mean_T = (log_ST.sum(axis=0) + prior.mean_T[kept]) / (len(log_ST) + 1)
        least_T = np.array([LENGTHSCALES] * parameters + [NOISE])
        variance_T = ((log_ST - mean_T) ** 2).mean(axis=0) + least_T**2
        means_T, deviations_T, starts_T = (
            each.copy() for each in (prior.mean_T, prior.deviation_T, prior.start_T)
        )
        means_T[kept] = starts_T[kept] = mean_T
        deviations_T[kept] = np.sqrt(variance_T)
        return Prior(means_T, deviations_T, starts_T)

    def best_first(self, tried: Sequence[Params]) -> Iterator[Params]:
        """Yield what adds most to what was tried, by the mean over the sweeps.

        First of all configurations with a result elsewhere, then of others. A configuration adds by
        how far its loss in a sweep is below that of the average, and of all that was tried.
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
