"""The expected values of trials: what each would give on average over random numbers.

A value is the trial's expected value plus noise, and the best value of many is mostly a lucky one:
the winner's curse. How expected values are spread is learned from all trials together, and each
trial is then pulled towards the others. Replicates pull it back as far as they prove.

Expected losses are normal, as far as the better half of the trials shows it: of the others it only
counts that they are worse. Centre, spread and noise are not known but averaged over. Before the
data it is an even bet that there is no spread, so no configuration is better than another: else
the luckiest of equals would pass for a little better.
Source: Gelman et al., Bayesian Data Analysis (3rd edition, 2013), chapter 5.

Axes: N trials, C centres, S spreads, V values of the noise, D draws, each of another world.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, log_ndtr

from hposvc.analysis.noise import Noise

Array = NDArray[np.float64]
LEVEL = 0.9  # of intervals
FEWEST = 3  # trials from which anything is learned of the others
MOST = 300  # trials that stand for all; more change little
DRAWS = 4000
EQUAL = 0.5  # probability before the data that all configurations are equally good


@dataclass(frozen=True)
class Expected:
    """An expected loss, or a difference of two, with its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Expectations:
    """Posterior of the expected losses of trials.

    Losses are in units of the noise, from a shift on.
    """

    names: Mapping[str, int]  # row of each trial
    mean_N: Array
    runs_N: Array
    noise_D: Array
    centre_D: Array
    spread_D: Array
    unit: float
    shift: float

    def draws(self, trial: str) -> Array:
        """Return draws (D) of a trial's expected loss, for all trials from the same worlds."""
        drawn_D: Array = self._draws(np.array([self.names[trial]]))[0]
        return drawn_D

    def of(self, trial: str) -> Expected:
        """Return a trial's expected loss with its interval at LEVEL."""
        return _summary(self.draws(trial))

    def means(self) -> dict[str, float]:
        """Return the expected loss of each trial."""
        means_N = np.concatenate(
            [
                self._believed(rows)[0].mean(axis=1)
                for rows in np.array_split(
                    np.arange(len(self.mean_N)), -(-len(self.mean_N) // MOST)
                )
            ]
        )
        return dict(zip(self.names, map(float, self.shift + self.unit * means_N), strict=True))

    def better(self, one: str, other: str) -> float:
        """Return the probability that a trial's expected loss is lower than another's."""
        return float((self.draws(one) < self.draws(other)).mean())

    def equal(self, one: str, other: str) -> float:
        """Return the probability that two trials' expected losses are the same."""
        return float((self.draws(one) == self.draws(other)).mean())

    def lead(self, one: str, other: str) -> Expected:
        """Return by how much a trial's expected loss lies below another's."""
        return _summary(self.draws(other) - self.draws(one))

    def lead_over_median(self, trial: str) -> Expected:
        """Return by how much a trial's expected loss lies below that of the median trial.

        Of more than MOST trials, some stand for all: every so many in the order of their values.
        """
        order, count = np.argsort(self.mean_N), len(self.mean_N)
        rows = order[np.linspace(0, count - 1, min(count, MOST)).round().astype(int)]
        return _summary(np.median(self._draws(rows), axis=0) - self.draws(trial))

    def _draws(self, rows: NDArray[np.intp]) -> Array:
        """Return draws of some trials' expected losses, the same ones each time."""
        expected_ND, deviation_ND = self._believed(rows)
        luck_ND = np.stack(
            [np.random.default_rng([int(row)]).standard_normal(DRAWS) for row in rows]
        )
        return self.shift + self.unit * (expected_ND + deviation_ND * luck_ND)

    def _believed(self, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return mean and deviation of some trials' expected losses in each world."""
        luck_ND = self.noise_D**2 / self.runs_N[rows, None]
        trust_ND = self.spread_D**2 / (self.spread_D**2 + luck_ND)  # in a trial's own mean
        expected_ND = self.centre_D + trust_ND * (self.mean_N[rows, None] - self.centre_D)
        return expected_ND, np.sqrt(trust_ND * luck_ND)


def _summary(drawn_D: Array) -> Expected:
    low, high = np.quantile(drawn_D, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return Expected(float(drawn_D.mean()), float(low), float(high))


def expectations(runs: Mapping[str, Sequence[float]], noise: Noise) -> Expectations | None:
    """Return what is believed of each trial's expected loss; None: too few trials, or no noise.

    Args:
        runs: the losses of each trial: its own, and those of new runs.
    """
    if len(runs) < FEWEST or noise.deviation == 0:
        return None
    unit, shift = noise.deviation, float(np.median([values[0] for values in runs.values()]))
    mean_N = (np.array([np.mean(values) for values in runs.values()]) - shift) / unit
    runs_N = np.array([len(values) for values in runs.values()], dtype=float)
    rng = np.random.default_rng(0)
    worlds = _population(mean_N, runs_N, noise.freedom, rng)
    names = {name: row for row, name in enumerate(runs)}
    return Expectations(names, mean_N, runs_N, *worlds, unit, shift)


def _population(
    mean_N: Array, runs_N: Array, freedom: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return draws (D each) of the noise, and of centre and spread of the expected losses.

    In units of the estimated noise.
    """
    border = float(np.median(mean_N)) if len(mean_N) >= 8 else float("inf")
    better = np.flatnonzero(mean_N <= border)
    worse = len(mean_N) - len(better)
    if len(better) > MOST:  # the very best, and others in between, as the rest of them all
        better = better[np.argsort(mean_N[better])]
        worse_share = MOST / len(better)
        better = better[np.linspace(0, len(better) - 1, MOST).astype(int)]
        worse = round(worse * worse_share)
    seen_N, runs_seen_N = mean_N[better], runs_N[better]
    noise_V = np.sqrt(freedom / (2 * gammaincinv(freedom / 2, (np.arange(15) + 0.5) / 15)))
    width = max(float(np.ptp(seen_N)), 1.0)
    centre_C = np.linspace(seen_N.min() - 0.5, seen_N.max() + 0.5 * width + 0.5, 48)
    spread_S = np.array([0.0, *np.geomspace(0.1, 3 * width, 32)])
    log_VCS = np.zeros((len(noise_V), len(centre_C), len(spread_S)))
    for number, deviation in enumerate(noise_V):
        for runs in np.unique(runs_seen_N):
            values = seen_N[runs_seen_N == runs]
            variance_S = spread_S**2 + deviation**2 / runs
            squares_C = ((values[:, None] - centre_C) ** 2).sum(axis=0)
            log_VCS[number] -= 0.5 * (squares_C[:, None] / variance_S)
            log_VCS[number] -= 0.5 * len(values) * np.log(variance_S)
        if worse:
            reach_CS = (centre_C[:, None] - border) / np.sqrt(spread_S**2 + deviation**2)
            log_VCS[number] += worse * log_ndtr(reach_CS)
    log_VCS[:, :, 0] += math.log(EQUAL / (1 - EQUAL) * (len(spread_S) - 1))
    weight = np.exp(log_VCS - log_VCS.max()).ravel()
    chosen_D = rng.choice(weight.size, DRAWS, p=weight / weight.sum())
    v, c, s = np.unravel_index(chosen_D, log_VCS.shape)
    within_D = (rng.random(DRAWS) - 0.5) * (centre_C[1] - centre_C[0])
    return noise_V[v], centre_C[c] + within_D, spread_S[s]
