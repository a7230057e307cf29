"""Judge a sweep by the values of its trials: its best, the default, the noise and the gain.

A value is a configuration's expected value plus noise, and the best value of many is mostly a lucky
one: the winner's curse. How expected values are spread is learned from all trials together, and
each trial is then pulled towards the others; new runs pull it back as far as they prove.

Expected losses are normal, as far as the better half of the trials shows it: of the others it only
counts that they are worse. Some of those may be outliers, anywhere within the range of all, and are
not pulled. Centre, spread and noise are not known but averaged over. Before the data it is an even
bet that there is no spread, so no configuration is better than another: else the luckiest of equals
would pass for a little better.

Whether the best is really better than the default is asked with new runs: how often would the
luckiest of so many equals come out as far ahead?

Sources: Gelman et al., Bayesian Data Analysis (3rd edition, 2013), chapter 5, for expected losses;
Box & Tiao, A Bayesian approach to some outlier problems, Biometrika 55 (1968), for outliers;
Dunnett, A multiple comparison procedure for comparing several treatments with a control, Journal of
the American Statistical Association 50 (1955), one-sided, for the gain; Snedecor & Cochran,
Statistical Methods (1989), chapters 5 and 6, for the pooled deviation; Gasser, Sroka &
Jennen-Steinmetz, Residual variance and residual pattern in nonlinear regression, Biometrika 73
(1986), for the deviation from second differences.

Axes: N trials, C centres, S spreads, V values of the noise, D draws, each of another world.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, gammaincinv, log_ndtr, ndtr, ndtri

from hposvc.estimate import CONFIDENCE, Estimate
from hposvc.state.prospects import Prospect, next_trials, pace_of, prospect
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState

Array = NDArray[np.float64]
HUGE = 1e100  # values beyond it are of no use: their squares exceed a float
VAGUE = 3  # degrees of freedom of a guessed noise: it may well be wrong by a factor of two
TAIL = 6  # last reports of a curve from which its scatter is taken
FEWEST = 3  # trials from which anything is learned of the others
MOST = 300  # trials that stand for all where a median is drawn
DRAWS = 4000
EQUAL = 0.5  # probability before the data that all configurations are equally good
OUTLIERS = 0.05  # share of the worse half, before the data, that have nothing to do with the others
GUESSED = 0.9  # the most that is believed if nothing was trained twice
CLAIMED = 0.03  # share of sweeps without any gain in which one is claimed
NODES = (np.arange(200) + 0.5) / 200  # midpoints of equal shares of a distribution


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a value that comes from random numbers alone."""

    deviation: float  # in the metric's unit; 0: equal runs gave equal values
    freedom: int  # degrees of freedom of the estimate
    source: Literal["repeats", "curves"]  # steps of one run may differ less than two runs

    @property
    def measured(self) -> bool:
        """Whether equal runs were compared; otherwise the noise is a guess."""
        return self.source == "repeats"

    @property
    def estimate(self) -> Estimate:
        """The deviation with its interval, for noise that is normal."""
        tails = (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2  # above the quantiles of chi-square
        ends = (math.sqrt(self.freedom / chdtri(self.freedom, tail)) for tail in tails)
        return Estimate(self.deviation, *(self.deviation * end for end in ends))


def noise_of_repeats(groups: Sequence[Sequence[float]]) -> Noise | None:
    """Return the pooled noise of groups of equal runs; None: no group has two values."""
    freedom = sum(len(values) - 1 for values in groups if values)
    if freedom < 1:
        return None
    squares = sum(float(((np.array(v) - np.mean(v)) ** 2).sum()) for v in groups if len(v) > 1)
    return Noise(math.sqrt(squares / freedom), freedom, "repeats")


def noise_of_curves(curves: Sequence[Sequence[float]]) -> Noise | None:
    """Return how the last steps of learning curves scatter; None: they are too short, or smooth.

    Second differences leave out a straight trend; the median over curves leaves out odd ones. A
    curve that bends one way only converges or grows: it tells nothing of two runs.
    """
    tails = [np.array(curve[-TAIL:]) for curve in curves if len(curve) >= TAIL]
    variances = [
        0.0 if _bends_one_way(tail) else float(np.mean(np.diff(tail, 2) ** 2)) / 6 for tail in tails
    ]
    if not variances or not (variance := float(np.median(variances))):
        return None
    return Noise(math.sqrt(variance), VAGUE, "curves")


def _bends_one_way(tail: Array) -> bool:
    """Return whether second differences have one sign; those of noise have it in 1 of 40 curves."""
    bend, rounding = np.diff(tail, 2), 1e-9 * float(np.abs(tail).max())
    return bool((bend >= -rounding).all() or (bend <= rounding).all())


@dataclass(frozen=True)
class Gain:
    """A comparison of the best of several configurations with the default."""

    size: float  # of the best mean over the default's; positive is better
    luck: float  # probability that luck alone gives the luckiest as much

    @property
    def claimed(self) -> bool:
        """Whether the gain is more than noise."""
        return self.size > 0 and self.luck < CLAIMED


def gain(rivals: Sequence[Sequence[float]], default: Sequence[float]) -> Gain | None:
    """Compare losses of the runs of each rival with those of the default.

    None: the noise is not known, as no configuration has two runs.
    """
    noise, rivals = noise_of_repeats([*rivals, default]), [values for values in rivals if values]
    if noise is None or not default or not rivals:
        return None
    control = float(np.mean(default))
    best = min(rivals, key=lambda values: float(np.mean(values)))
    lead = control - float(np.mean(best))
    if noise.deviation == 0:
        return Gain(lead, 0.0 if lead > 0 else 1.0)
    statistic = lead / noise.deviation / math.sqrt(1 / len(best) + 1 / len(default))
    counts = [len(values) for values in rivals]
    return Gain(lead, luckiest(statistic, counts, len(default), noise.freedom))


def luckiest(statistic: float, counts: Sequence[int], control: int, freedom: int) -> float:
    """Return how probable it is that the luckiest of equals comes out at least this far ahead.

    scipy.stats.dunnett does the same for each rival, and for hundreds of them in minutes.

    Args:
        statistic: lead over the control, in estimated deviations of the difference.
        counts: runs of each rival.
        control: runs of the control.
        freedom: degrees of freedom of the estimated noise.
    """
    scale_S1 = np.sqrt(2 * gammaincinv(freedom / 2, NODES) / freedom)[:, None]  # of the noise
    shift_Z = ndtri(NODES) / math.sqrt(control)  # luck of the control
    log_SZ = np.zeros((len(NODES), len(NODES)))
    for runs, rivals in Counter(counts).items():
        reach = statistic * scale_S1 * math.sqrt(1 / runs + 1 / control) + shift_Z
        log_SZ += rivals * np.log(np.maximum(ndtr(reach * math.sqrt(runs)), 1e-300))
    return float(np.clip(1 - np.exp(log_SZ).mean(), 0.0, 1.0))


@dataclass(frozen=True)
class Expectations:
    """Posterior of the expected losses of trials.

    Losses, or their logarithms, are in units of the noise, from a shift on.
    """

    names: Mapping[str, int]  # row of each trial
    mean_N: Array
    runs_N: Array
    noise_D: Array
    centre_D: Array
    spread_D: Array
    unit: float
    shift: float
    in_ratios: bool = False  # whether they are logarithms
    sign: int = 0  # of all values: 1, -1; 0: they have several, and so may the expected ones

    def draws(self, trial: str) -> Array:
        """Return draws (D) of a trial's expected loss, for all trials from the same worlds."""
        row = self.names[trial]
        rng = np.random.default_rng([row])  # the same each time
        luck_D = rng.standard_normal(DRAWS)
        trust_D = self._trust(self.runs_N[row])
        trust_D = np.where(rng.random(DRAWS) < self._outlier(row), 1.0, trust_D)
        expected_D = self.centre_D + trust_D * (self.mean_N[row] - self.centre_D)
        deviation_D = self.noise_D * np.sqrt(trust_D / self.runs_N[row])
        return self._losses(expected_D + deviation_D * luck_D)

    def _losses(self, scaled: Array) -> Array:
        """Return losses in the metric's unit, with the sign that all values have."""
        losses: Array = self.shift + self.unit * scaled
        losses = np.exp(losses) if self.in_ratios else losses
        return np.maximum(losses * self.sign, 0.0) * self.sign if self.sign else losses

    def means(self) -> dict[str, float]:
        """Return the expected loss of each trial."""
        mean_N = np.empty_like(self.mean_N)
        for runs in np.unique(self.runs_N):
            trust_D, rows = self._trust(runs), self.runs_N == runs
            mean_N[rows] = ((1 - trust_D) * self.centre_D).mean()
            mean_N[rows] += trust_D.mean() * self.mean_N[rows]
        return dict(zip(self.names, map(float, self._losses(mean_N)), strict=True))

    def of(self, trial: str) -> Estimate:
        """Return a trial's expected loss with its interval."""
        return Estimate.of_draws(self.draws(trial))

    def better(self, one: str, other: str) -> float:
        """Return the probability that a trial's expected loss is lower than another's."""
        return float((self.draws(one) < self.draws(other)).mean())

    def lead(self, one: str, other: str) -> Estimate:
        """Return by how much a trial's expected loss lies below another's."""
        return Estimate.of_draws(self.draws(other) - self.draws(one))

    def lead_over_median(self, trial: str) -> Estimate:
        """Return by how much a trial's expected loss lies below that of the median trial.

        Of more than MOST trials, some stand for all: every so many in the order of their values.
        """
        names = sorted(self.names, key=lambda name: self.mean_N[self.names[name]])
        places = np.linspace(0, len(names) - 1, min(len(names), MOST)).round().astype(int)
        median_D = np.median([self.draws(names[place]) for place in places], axis=0)
        return Estimate.of_draws(median_D - self.draws(trial))

    def _outlier(self, row: int) -> Array | float:
        """Return the probability that a trial is an outlier, in each world (D)."""
        if self.mean_N[row] <= _border(self.mean_N):
            return 0.0
        variance_D = self.spread_D**2 + self.noise_D**2 / self.runs_N[row]
        squares_D = (self.mean_N[row] - self.centre_D) ** 2 / variance_D
        normal_D = np.exp(-squares_D / 2) / np.sqrt(2 * np.pi * variance_D)
        outlier = OUTLIERS / float(np.ptp(self.mean_N))
        chance_D: Array = outlier / (outlier + (1 - OUTLIERS) * normal_D)
        return chance_D

    def _trust(self, runs: float) -> Array:
        """Return the weight of the mean of this many runs, beside the centre, in each world."""
        trust_D: Array = self.spread_D**2 / (self.spread_D**2 + self.noise_D**2 / runs)
        return trust_D


def expectations(
    runs: Mapping[str, Sequence[float]], noise: Noise, in_ratios: bool = False
) -> Expectations | None:
    """Return what is believed of each trial's expected loss; None: too few trials, or no noise.

    Args:
        runs: the losses of each trial: its own, and those of new runs.
        in_ratios: whether losses, which are positive, are compared by their ratios; the noise is
            then that of their logarithms.
    """
    if len(runs) < FEWEST or noise.deviation == 0:
        return None
    signs = {float(np.sign(value)) for values in runs.values() for value in values} - {0.0}
    sign = int(signs.pop()) if len(signs) == 1 else 0
    if in_ratios:
        runs = {name: [math.log(value) for value in values] for name, values in runs.items()}
    unit, shift = noise.deviation, float(np.median([values[0] for values in runs.values()]))
    mean_N = (np.array([np.mean(values) for values in runs.values()]) - shift) / unit
    runs_N = np.array([len(values) for values in runs.values()], dtype=float)
    worlds = _population(mean_N, runs_N, noise.freedom, np.random.default_rng(0))
    names = {name: row for row, name in enumerate(runs)}
    return Expectations(names, mean_N, runs_N, *worlds, unit, shift, in_ratios, sign)


def _population(
    mean_N: Array, runs_N: Array, freedom: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return draws (D each) of the noise, and of centre and spread of the expected losses.

    In units of the estimated noise.
    """
    border = _border(mean_N)
    better_N = mean_N <= border
    seen_N, runs_seen_N, worse = mean_N[better_N], runs_N[better_N], int((~better_N).sum())
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


def _border(mean_N: Array) -> float:
    """Return the mean beyond which it only counts of a trial that it is worse."""
    return float(np.median(mean_N)) if len(mean_N) >= 8 else math.inf


@dataclass(frozen=True)
class Judgement:
    """Judgement of the values of a sweep with one metric. Losses: lower is better."""

    state: SweepState
    best: TrialState | None
    configuration: str | None  # the best one's, as a key of `runs`; None: no run is complete
    default: TrialState | None  # the first trial; None: it can't be compared
    default_runs: Sequence[float]  # its losses that were not seen when the best was chosen
    runner_up: str | None  # the next best trial of another configuration, or the next finalist
    runs: Mapping[str, Sequence[float]]  # losses of each configuration's complete runs
    again: Mapping[str, Sequence[float]]  # those of them that are not its first trial's
    noise: Noise | None  # None: nothing tells it
    expectations: Expectations | None  # None: the noise is not known, or there is none
    gain: Gain | None  # over the default; None: too little was run twice
    prospect: Prospect | None  # of the next trials

    def first(self, trial: str) -> str:
        """Return the trial whose configuration a trial repeats; itself, if it repeats none."""
        return self.state.trials[trial].repeat_of or trial

    @property
    def measured(self) -> bool:
        """Whether the noise comes from equal runs."""
        return self.noise is not None and self.noise.measured

    def better_than(self, other: str | None) -> float | None:
        """Return the probability that the best is really better than another; None: unknown.

        Without new runs the noise is a guess, so neither answer has more than GUESSED.
        """
        draws = self._draws(other)
        if draws is None:
            return None
        chance = float((draws[0] < draws[1]).mean())
        return chance if self.measured else min(max(chance, 1 - GUESSED), GUESSED)

    def as_good_as(self, other: str | None) -> float:
        """Return the probability that the best and another are equally good; 0 if unknown."""
        draws = self._draws(other)
        return 0.0 if draws is None else float((draws[0] == draws[1]).mean())

    def _draws(self, other: str | None) -> tuple[Array, Array] | None:
        """Return draws of the expected losses of the best and of another configuration."""
        best, known = self.configuration, self.expectations
        rival = None if other is None else self.first(other)
        if known is None or best is None or rival in (best, None) or rival not in known.names:
            return None
        return known.draws(best), known.draws(rival)


def judge(state: SweepState) -> Judgement:
    """Judge a sweep by the values of its trials that came to their ends: they can be compared."""
    trials = state.trials
    first = {trial.id: trial.repeat_of or trial.id for trial in trials.values()}
    losses = {t.id: t.loss for t in trials.values() if t.at_end and abs(t.loss) < HUGE}
    again = _further_runs(state, losses)
    own = {name: trials[name].seed_losses(1)[0] for name in losses}
    runs = {name: [loss] for name, loss in own.items() if first[name] == name}
    for name, values in again.items():
        runs.setdefault(name, []).extend(values)
    in_ratios = spans_decades([value for values in runs.values() for value in values])
    noise = _noise(state, own, again, math.log if in_ratios else float)
    known = None if noise is None else expectations(runs, noise, in_ratios)
    best = None if state.best is None else trials[state.best]
    configuration = first[best.id] if best is not None and first[best.id] in runs else None
    if noise is not None and in_ratios and best is not None:
        noise = replace(noise, deviation=noise.deviation * best.loss)  # near the best
    finalists = {name: again[name] for name in state.replicates.finalists if name in again}

    means = {name: float(np.mean(values)) for name, values in finalists.items()}
    if len(means) < 2 or best is None or best.id not in means:
        means = losses
    others = [name for name in means if best is None or first[name] != first[best.id]]

    # A first trial that was stopped is compared by its new runs, which go to the end.
    default = next(iter(trials.values()), None)
    if default is not None and default.id not in runs:
        default = None
    name, default_runs = "", []
    if default is not None:
        name = default.id
        chosen = name in finalists or name in {trial.repeat_of for trial in trials.values()}
        default_runs = again.get(name, []) if chosen else runs[name]
    rivals = [values for rival, values in finalists.items() if rival != name]
    everyone = [again.get(rival, values) for rival, values in runs.items() if rival != name]

    ended = [trial.id for trial in trials.values() if trial.over]
    expected = losses if known is None else known.means()
    return Judgement(
        state=state,
        best=best,
        configuration=configuration,
        default=default,
        default_runs=default_runs,
        runner_up=min(others, key=means.__getitem__, default=None),
        runs=runs,
        again=again,
        noise=noise,
        expectations=known,
        gain=gain(rivals or everyone, default_runs),
        prospect=prospect(
            [expected.get(first[trial], math.inf) for trial in ended],
            next_trials(len(ended)),
            pace_of(state.spec.search),
        ),
    )


def _further_runs(state: SweepState, losses: Mapping[str, float]) -> dict[str, list[float]]:
    """Return the losses of replicates, and of trials that repeat another one, by that one."""
    metric, replicates = state.spec.objectives[0], state.replicates
    seeded = [name for name in replicates.seeded if len(state.trials[name].runs) > 1]
    # Replicates with other values are no further runs of their trial.
    finalists = {} if replicates.changed else replicates.finalists
    values = {name: replicates.values(name) for name in finalists}
    if replicates.baseline:
        values[replicates.baseline[0].shown_as] = replicates.baseline_values
    for name in seeded:
        seeds = [value for run in state.trials[name].runs[1:] for value in run.own_values]
        values[name] = [*values.get(name, ()), *seeds]
    again = {
        name: [metric.loss(value) for value in seen if abs(value) < HUGE]
        for name, seen in values.items()
    }
    for name, loss in losses.items():
        if (first := state.trials[name].repeat_of) is not None:
            again.setdefault(first, []).append(loss)
    return {name: seen for name, seen in again.items() if seen}


def spans_decades(losses: Sequence[float]) -> bool:
    """Return whether losses are compared by their ratios: positive, over 1.5 decades and more."""
    ordered = sorted(losses)
    at_90 = round(0.9 * (len(ordered) - 1))
    return bool(ordered) and ordered[0] > 0 and ordered[at_90] / ordered[0] > 30


def _noise(
    state: SweepState,
    losses: Mapping[str, float],
    again: Mapping[str, Sequence[float]],
    scale: Callable[[float], float],
) -> Noise | None:
    # Not the loss of a trial that was run again: it may have been so because it was lucky. Only
    # where it was run again once is there nothing else to compare with.
    if state.noiseless:
        return Noise(0.0, 1, "repeats")
    groups = [
        [losses[name], *values] if len(values) == 1 and name in losses else values
        for name, values in again.items()
    ]
    curves = [[value for _, value in state.trials[name].curve] for name in losses]
    in_logs = scale is math.log
    usable = [
        [scale(value) for value in curve[-TAIL:]]
        for curve in curves
        if all(abs(value) < HUGE and (value > 0 or not in_logs) for value in curve)
    ]
    return noise_of_repeats([[*map(scale, group)] for group in groups]) or noise_of_curves(usable)
