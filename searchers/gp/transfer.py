"""Earlier sweeps as a function: the loss that they predict, weighted by how well they do.

Each earlier sweep has a process of its own. A sweep's losses are taken as a multiple of what these
predict, plus a process of what they leave over (learned/process.py). A sweep counts by how sure the
results here make it that it ranks configurations better than chance, so one that misleads soon
counts for nothing. Since only ranks and shapes are taken, levels and units of losses do not matter.

Axes: S earlier sweeps, T trials with a result, R rows, M queries, D model columns.
Source: Feurer, Letham & Bakshy, Scalable Meta-Learning for Bayesian Optimization using
Ranking-Weighted Gaussian Process Ensembles (2018), of which this keeps weights by ranks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from searchers.gp.encoding import Encoding, units
from searchers.gp.fits import MODELS
from searchers.gp.kernels import Array
from searchers.gp.learned.prior import LearnedPrior
from searchers.gp.proposer import Process, Proposer
from searchers.gp.training_data import Evidence
from searchers.magnitudes import in_range
from searchers.searcher import TRIED, Observation
from searchers.space import Params, Space

DRAWN = 512  # configurations that are compared where earlier sweeps were of the same code


@dataclass(frozen=True)
class EarlierSweep:
    """A fitted process, whose predictions are in standard deviations of the sweep's losses."""

    name: str  # its id; empty where trials came without one
    proposer: Proposer
    process: Process

    @classmethod
    def of(
        cls,
        name: str,
        space: Space,
        trials: Sequence[Observation],
        rows: int,
        learned: LearnedPrior | None,
    ) -> "EarlierSweep | None":
        """Return the sweep of some trials; None: they are too few for a model."""
        evidence = Evidence.of(in_range(trials))
        if not evidence.is_enough:
            return None
        proposer = Proposer.of(space, MODELS[0], evidence.bounded(rows), learned)
        # A fixed generator: a resumed sweep must fit the same process.
        fitted = proposer.fitted((), len(evidence.loss_R), np.random.default_rng(0))
        return cls(name, proposer, proposer.posterior(fitted))


@dataclass(frozen=True)
class EarlierSweeps:
    """A weighted mean of what earlier sweeps predict."""

    sweeps: tuple[EarlierSweep, ...]
    untried: tuple[Params, ...]  # configurations with a result, which here may be another one
    weight_S: Array
    trust: float = 1.0  # from 0 to 1; 0: no sweep ranks this one's results
    offset: float = 0.0

    @classmethod
    def of(
        cls,
        space: Space,
        earlier: Sequence[Observation],
        rows: int,
        learned: LearnedPrior | None,
    ) -> "EarlierSweeps":
        """Return the sweeps of earlier trials, whose ids are SWEEP/TRIAL, all of equal weight."""
        trials: dict[str, list[Observation]] = {}
        for seen in earlier:
            trials.setdefault(seen.id.rpartition("/")[0], []).append(seen)
        fitted = [EarlierSweep.of(name, space, of, rows, learned) for name, of in trials.items()]
        sweeps = tuple(sweep for sweep in fitted if sweep is not None)
        done = [seen for seen in earlier if seen.state == "done" and TRIED not in seen.note]
        untried = tuple(seen.params for seen in done)
        return cls(sweeps, untried, np.full(len(sweeps), 1.0 / max(len(sweeps), 1)))

    def __call__(self, x_MD: Array) -> Array:
        value_M = np.full(len(x_MD), -self.offset)
        for weight, sweep in self._used:
            value_M += weight * sweep.process.mean(x_MD)
        return value_M

    def with_gradient(self, x_MD: Array) -> tuple[Array, Array]:
        """Return the value, and its gradient by the model columns."""
        value_M, gradient_MD = np.full(len(x_MD), -self.offset), np.zeros(x_MD.shape)
        for weight, sweep in self._used:
            mean_M, _, mean_MD, _ = sweep.process.predict_with_gradient(x_MD)
            value_M += weight * mean_M
            gradient_MD += weight * mean_MD
        return value_M, gradient_MD

    @property
    def _used(self) -> list[tuple[float, EarlierSweep]]:
        """The sweeps that count, with their weights."""
        pairs = zip(self.weight_S.tolist(), self.sweeps, strict=True)
        return [(weight, sweep) for weight, sweep in pairs if weight]

    def scaled(self, weight: float, offset: float) -> "EarlierSweeps":
        """Return weight * (this function - offset)."""
        offset = weight * (self.offset + offset)
        return replace(self, weight_S=weight * self.weight_S, offset=offset)

    def judged(self, x_TD: Array, loss_T: Array) -> "EarlierSweeps":
        """Return the sweeps weighted by how surely they rank some results better than chance."""
        trust_S = np.array([agreement(sweep.process.mean(x_TD), loss_T) for sweep in self.sweeps])
        trust = float(trust_S.max())
        return replace(self, weight_S=trust_S / trust_S.sum() if trust else trust_S, trust=trust)

    def best_first(self, space: Space) -> Iterator[Params]:
        """Yield what is predicted to be best: first of what was tried elsewhere, then of all."""
        rng = np.random.default_rng(0)
        yield from self._sorted(space, [each for each in self.untried if space.allows(each)])
        yield from self._sorted(space, space.sample_related(DRAWN, rng))

    def _sorted(self, space: Space, configurations: Sequence[Params]) -> Iterator[Params]:
        """Yield configurations, those of the lowest mean prediction first."""
        encoding = Encoding.of(space)
        x_MD = encoding.columns_of(encoding.snap(units(space, configurations)))
        for index in np.argsort(self(x_MD), kind="stable"):
            yield configurations[index]


def agreement(predicted_T: Array, loss_T: Array) -> float:
    """Return from 0 to 1 how sure it is that predictions rank losses better than chance.

    0: no better. By the normal approximation of Kendall's tau under chance.
    """
    trials = len(loss_T)
    if trials < 2:
        return 0.0
    from scipy.stats import kendalltau

    tau = float(kendalltau(predicted_T, loss_T).statistic)
    deviation = np.sqrt(2.0 * (2.0 * trials + 5.0) / (9.0 * trials * (trials - 1.0)))
    return max(0.0, 2.0 * float(ndtr(tau / deviation)) - 1.0) if np.isfinite(tau) else 0.0
