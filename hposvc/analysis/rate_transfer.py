"""Whether the best learning rate stays where it is while a model grows, judged from its trials.

For each size (of a width, a depth, a batch) the loss near the best is a function of log2(rate): a
parabola with a flat prior, a Gaussian process with a Matern 5/2 kernel for what a parabola misses,
and noise. Positive losses are taken as logarithms: the larger, the more they differ by the seed.
Sizes share the process's length and variance and the noise; length and noise are averaged over a
grid, variance and parabolas integrated out, the latter as a kernel of wide variance. Each posterior
draw has an optimum for each size, within the rates near the best. The least-squares line of these
optima by log2(size) has a slope: the shift, in doublings of the rate per doubling of the size.

Near the best a running median of three losses is below the median of all losses, or above its own
minimum by less than the noise explains; so no single lucky trial decides, and of a flat curve all
counts. Trials that diverged only bound it. On synthetic curves the shift was within its interval in
85 to 92 % of cases, on lopsided ones too; single optima err to one side where a curve has a kink.

Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), section 2.7, with
Jeffreys' prior of the variance.

Axes: N trials of a size near its best, M points of a line of rates, B coefficients of a parabola, C
cells of the grid, D draws, S sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct, Matern

from hposvc.errors import fail
from hposvc.estimate import Estimate
from hposvc.open_sweep import OpenSweep
from hposvc.text import number

Array = NDArray[np.float64]
Conclusion = Literal["transfers", "does not transfer", "cannot tell"]

STILL = 0.25  # doublings of the rate per doubling of the size, below which it stays where it is
MIN_SIZES, MIN_RATES = 3, 5
EDGE = 0.1  # share of the draws with their optimum at an end of the rates tried, that is too many
VAGUE = 0.5  # of the range of log rates: a wider interval says nothing of an optimum
BASIS = 3  # coefficients of a parabola
FLAT = 1e6  # variance of these, in shares of the process's: as good as a flat prior
LENGTHS = np.geomspace(0.3, 3.0, 4)  # of the kernel, in shares of the range near the best
NOISES = np.geomspace(1e-2, 1e3, 6)  # variances, in shares of the process's
NEAR = 4.0  # standard deviations of the noise
POINTS, DRAWS = 97, 2000
MOST = 50  # times as many trials: beyond, the advice is another


@dataclass(frozen=True)
class SizeTrials:
    """The trials of one size."""

    size: float
    rates: tuple[float, ...]
    losses: tuple[float, ...]  # lower is better; infinite: the trial diverged


@dataclass(frozen=True)
class Optimum:
    """The best rate of a size."""

    size: float
    rate: Estimate
    trials: int
    diverged: int
    beyond: Literal["", "lower", "higher"]  # where it may lie outside the rates that were tried

    def data(self) -> dict[str, Any]:
        """Return the optimum as JSON."""
        rest = {"trials": self.trials, "diverged": self.diverged, "beyond": self.beyond}
        return {"size": self.size, **self.rate.data("rate"), **rest}


@dataclass(frozen=True)
class RateTransfer:
    """The optima by size, how they shift, and what that means."""

    of: str  # the rate's name
    over: str  # the size's name
    metric: str
    optima: tuple[Optimum, ...]
    shift: Estimate  # doublings of the rate per doubling of the size
    cost: Estimate  # of the smallest size's rate at the largest, in the metric
    answer: Conclusion
    reason: str
    sizes: tuple[SizeTrials, ...]

    def data(self) -> dict[str, Any]:
        """Return the output of `hposvc transfer -o json`."""
        return {
            "of": self.of,
            "over": self.over,
            "metric": self.metric,
            "answer": self.answer,
            "reason": self.reason,
            "shift": self.shift.data(),
            "cost": self.cost.data(),
            "optima": [best.data() for best in self.optima],
        }


def transfer_of(sweeps: Sequence[OpenSweep], of: str, over: str) -> RateTransfer:
    """Judge the trials of one or several sweeps that came to their ends, or diverged.

    Raises:
        SpecError: the sweeps optimize other metrics, or have too few sizes or rates.
    """
    records = [sweep.record() for sweep in sweeps]
    metrics = {metric for record in records for metric in record.state.spec.objectives}
    if len(metrics) != 1:
        raise fail("the sweeps have several metrics; a rate is best for one metric")
    [metric] = metrics
    found: dict[float, list[tuple[float, float]]] = {}
    for record in records:
        for trial in record.state.trials.values():
            size, rate = (_positive(trial.reported_params, name) for name in (over, of))
            if trial.diverged and not trial.excluded:
                found.setdefault(size, []).append((rate, math.inf))
            elif trial.at_end and trial.value is not None:
                found.setdefault(size, []).append((rate, trial.loss))
    sizes = [SizeTrials(size, *zip(*found[size], strict=True)) for size in sorted(found)]
    return judge_transfer(sizes, of, over, metric.name)


def _positive(params: Mapping[str, object], name: str) -> float:
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        given = ", ".join(sorted(params))
        fix = f"it has {given}; a fixed one is a parameter too, such as {name}: 64"
        raise fail(f"a trial has no number above 0 under {name!r}", fix=fix)
    return float(value)


def judge_transfer(
    sizes: Sequence[SizeTrials], of: str, over: str, metric: str, seed: int = 0
) -> RateTransfer:
    """Estimate the optimum of each size, smallest first, and say whether it stays.

    Raises:
        SpecError: there are too few sizes, or too few rates with a loss for one of them.
    """
    _check_enough(sizes, of, over)
    rng = np.random.default_rng(seed)
    positive = all(loss > 0 for each in sizes for loss in each.losses)
    fitted = [
        replace(each, losses=tuple(np.log(each.losses))) if positive else each for each in sizes
    ]
    noise = _noise(fitted)
    fits = [_Near.of(each, noise) for each in fitted]
    curves_SDM = _draw(fits, rng)
    best_SD = np.array(
        [
            fit.line_M[curves_DM.argmin(axis=1)]
            for fit, curves_DM in zip(fits, curves_SDM, strict=True)
        ]
    )
    optima = tuple(map(_optimum, sizes, fits, best_SD))
    logs_S = np.log2([each.size for each in sizes])
    centred_S = logs_S - logs_S.mean()
    slope_D = centred_S @ best_SD / (centred_S @ centred_S)
    shift = Estimate.of_draws(slope_D)
    in_losses = np.exp if positive else np.positive
    cost = _cost(sizes[-1], fits[-1], in_losses(curves_SDM[-1]), float(best_SD[0].mean()))
    answer, reason = _answer(sizes, optima, shift, of, over)
    return RateTransfer(
        of=of,
        over=over,
        metric=metric,
        optima=optima,
        shift=shift,
        cost=cost,
        answer=answer,
        reason=reason,
        sizes=tuple(sizes),
    )


def _check_enough(sizes: Sequence[SizeTrials], of: str, over: str) -> None:
    if len(sizes) < MIN_SIZES:
        message = f"trials that came to their ends have {len(sizes)} values of {over}"
        raise fail(message, fix=f"a line through optima needs {MIN_SIZES} or more")
    for each in sizes:
        rates = {
            rate for rate, loss in zip(each.rates, each.losses, strict=True) if loss < math.inf
        }
        if len(rates) < MIN_RATES:
            message = f"with {over} {number(each.size)}, {len(rates)} values of {of} have a loss"
            raise fail(message, fix=f"an optimum needs {MIN_RATES} or more")


def _noise(sizes: Sequence[SizeTrials]) -> float:
    """Return the standard deviation of losses beside their neighbours' mean, roughly."""
    apart: list[float] = []
    for each in sizes:
        pairs = sorted(zip(each.rates, each.losses, strict=True))
        y_N = np.array([loss for _, loss in pairs if loss < math.inf])
        apart += [*np.abs(y_N[1:-1] - (y_N[:-2] + y_N[2:]) / 2)]
    return 1.4826 * float(np.median(apart)) / math.sqrt(1.5)


def _near_best(each: SizeTrials, noise: float) -> tuple[Array, Array, bool, bool]:
    """Return log2(rate) and loss near the best, and whether more was tried below and above."""
    order_N = np.argsort(each.rates, kind="stable")
    x_N, y_N = np.log2(each.rates)[order_N], np.array(each.losses)[order_N]
    finite_N = np.isfinite(y_N)
    ends = x_N[0], x_N[-1]
    x_N, y_N = x_N[finite_N], y_N[finite_N]
    padded_N = np.concatenate([y_N[:1], y_N, y_N[-1:]])
    smooth_N = np.median(np.column_stack([padded_N[:-2], y_N, padded_N[2:]]), axis=1)
    low = high = int(smooth_N.argmin())
    fewest = max(MIN_RATES, (len(x_N) + 1) // 2)
    limit = max(np.median(y_N), smooth_N.min() + NEAR * noise)
    while low > 0 and smooth_N[low - 1] <= limit:
        low -= 1
    while high < len(x_N) - 1 and smooth_N[high + 1] <= limit:
        high += 1
    while high - low + 1 < fewest or len({*x_N[low : high + 1]}) < MIN_RATES:
        below = smooth_N[low - 1] if low > 0 else math.inf
        above = smooth_N[high + 1] if high < len(x_N) - 1 else math.inf
        low, high = (low - 1, high) if below <= above else (low, high + 1)
    near = slice(low, high + 1)
    return x_N[near], y_N[near], bool(x_N[low] > ends[0]), bool(x_N[high] < ends[1])


@dataclass(frozen=True)
class _Near:
    """The trials of one size near its best."""

    x_N: Array
    y_N: Array
    line_M: Array  # log2 of the rates between which the best is looked for
    open_low: bool  # whether nothing was tried below the line, or above it
    open_high: bool

    @classmethod
    def of(cls, each: SizeTrials, noise: float) -> "_Near":
        x_N, y_N, below, above = _near_best(each, noise)
        line_M = np.linspace(x_N[0], x_N[-1], POINTS)
        return cls(x_N, y_N, line_M, not below, not above)

    @cached_property
    def parabola(self) -> np.polynomial.Polynomial:
        """The parabola of least squares, beside which the process is small."""
        return np.polynomial.Polynomial.fit(self.x_N, self.y_N, BASIS - 1)

    def column(self, x_M: Array) -> Array:
        """Return log2(rate) as the process takes it, in shares of the range near the best."""
        return np.reshape((x_M - self.x_N.mean()) / np.ptp(self.x_N), (-1, 1))

    def process(self, length: float, noise: float) -> GaussianProcessRegressor:
        """Fit a process to what the parabola leaves, in units of the process's variance.

        `alpha` is the noise; that of a WhiteKernel would be in the curves that are drawn too.
        """
        kernel = Matern(length / np.ptp(self.x_N), nu=2.5) + FLAT * DotProduct() ** 2
        process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None)
        return process.fit(self.column(self.x_N), self.y_N - self.parabola(self.x_N))


def _draw(fits: Sequence[_Near], rng: np.random.Generator) -> list[Array]:
    """Return posterior draws of each size's curve along its line."""
    span = float(np.mean([np.ptp(fit.x_N) for fit in fits]))
    freedom = sum(len(fit.x_N) - BASIS for fit in fits)
    cells = [(length * span, noise) for length in LENGTHS for noise in NOISES]
    solved = [[fit.process(*cell) for fit in fits] for cell in cells]
    squares_C = np.array([sum(each.y_train_ @ each.alpha_ for each in row) for row in solved])
    logs_C = np.array([sum(np.log(np.diag(each.L_)).sum() for each in row) for row in solved])
    logs_C = -logs_C - freedom / 2 * np.log(np.maximum(squares_C, 1e-300))
    weight_C = np.exp(logs_C - logs_C.max())
    counts_C = rng.multinomial(DRAWS, weight_C / weight_C.sum())
    drawn: list[list[Array]] = [[] for _ in fits]
    for cell in np.flatnonzero(counts_C):
        deviation_D = np.sqrt(squares_C[cell] / rng.chisquare(freedom, counts_C[cell]))
        for process, fit, curves in zip(solved[cell], fits, drawn, strict=True):
            mean_M, unit_MM = process.predict(fit.column(fit.line_M), return_cov=True)
            unit_DM = rng.multivariate_normal(0 * mean_M, unit_MM, len(deviation_D), method="eigh")
            curves.append(fit.parabola(fit.line_M) + mean_M + deviation_D[:, None] * unit_DM)
    return [np.concatenate(curves) for curves in drawn]


def _optimum(each: SizeTrials, fit: _Near, best_D: Array) -> Optimum:
    lower = fit.open_low and (best_D == fit.line_M[0]).mean() > EDGE
    higher = fit.open_high and (best_D == fit.line_M[-1]).mean() > EDGE
    return Optimum(
        size=each.size,
        rate=Estimate.of_draws(best_D).map(lambda log: 2.0**log),
        trials=len(each.losses),
        diverged=sum(loss == math.inf for loss in each.losses),
        beyond="lower" if lower else "higher" if higher else "",
    )


def _cost(each: SizeTrials, fit: _Near, curves_DM: Array, rate: float) -> Estimate:
    """Return what log2(rate) costs in comparison with the best, in losses.

    Farther from the best it is the loss between the next trials; infinite if the nearest diverged.
    """
    best_D = curves_DM.min(axis=1)
    if fit.line_M[0] <= rate <= fit.line_M[-1]:
        loss_D = curves_DM[:, int(np.abs(fit.line_M - rate).argmin())]
    else:
        pairs = sorted(zip(np.log2(each.rates), each.losses, strict=True))
        x_N, y_N = np.array(pairs).T
        if np.isinf(y_N[np.abs(x_N - rate).argmin()]):
            return Estimate(math.inf, math.inf, math.inf)
        finite_N = np.isfinite(y_N)
        loss_D = np.full(len(best_D), np.interp(rate, x_N[finite_N], y_N[finite_N]))
    return Estimate.of_draws(np.maximum(loss_D - best_D, 0.0))


def _answer(
    sizes: Sequence[SizeTrials],
    optima: Sequence[Optimum],
    shift: Estimate,
    of: str,
    over: str,
) -> tuple[Conclusion, str]:
    mean, low, high = shift.value, shift.low, shift.high
    names = f"from {over} {number(optima[0].size)} to {number(optima[-1].size)}"
    factor = shift.map(lambda log: 2.0**log).text("{:.2f}".format)
    moves = f"{names} the best {of} is multiplied by {factor} with each doubling of {over}"
    flat = [
        number(best.size)
        for each, best in zip(sizes, optima, strict=True)
        if best.rate.high / best.rate.low > (max(each.rates) / min(each.rates)) ** VAGUE
        or len({loss for loss in each.losses if loss < math.inf}) == 1
    ]
    if flat:
        return "cannot tell", (
            f"with {over} {', '.join(flat)} losses hardly differ beside their noise over the "
            f"values of {of}; widen their range, train longer, or give each several seeds"
        )
    if abs(mean) >= STILL and low * high > 0:
        return "does not transfer", moves
    outside = [optimum for optimum in optima if optimum.beyond]
    if outside:
        where = ", ".join(f"{number(each.size)} ({each.beyond})" for each in outside)
        return "cannot tell", (
            f"the best {of} may lie outside the values that were tried with {over} {where}; extend "
            f"the range of {of} there, or train longer if losses hardly differ"
        )
    if max(-low, high) < STILL:
        return "transfers", moves
    half = max(high - mean, mean - low)
    wanted = STILL - abs(mean) if abs(mean) < STILL else abs(mean)
    times = (half / max(wanted, STILL / 4)) ** 2
    fix = f"about {max(2, math.ceil(times))} times as many trials near the best would settle it"
    if times > MOST:
        fix = "the losses hardly differ beside their noise: train longer, or widen the range"
    return "cannot tell", f"{moves}: too wide an interval; {fix}"
