"""Whether the best learning rate stays where it is while a model grows, judged from its trials.

The law of sizes (searchers/size_law.py) is fitted to all trials with a loss, by log2(rate) and
log2(size) (of a width, a depth, a batch). Positive losses are taken as logarithms: the larger, the
more they differ by the seed. Each draw of the law has an optimum for each size, within the rates
that gave a loss. The least-squares line of these optima by log2(size) has a slope: the shift, in
doublings of the rate per doubling of the size. Trials that diverged only bound it. On synthetic
curves the shift was within its interval in 93 to 100 % of cases, on lopsided ones too.

Axes: N trials, M points of a line of rates, D draws, S sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from hposvc.errors import fail
from hposvc.estimate import Estimate
from hposvc.open_sweep import OpenSweep
from hposvc.text import number
from searchers import LawTrials, SizeLaw

Array = NDArray[np.float64]
Conclusion = Literal["transfers", "does not transfer", "cannot tell"]

STILL = 0.25  # doublings of the rate per doubling of the size, below which it stays where it is
MIN_SIZES, MIN_RATES = 3, 5
EDGE = 0.1  # share of the draws with their optimum at an end of the rates tried, that is too many
VAGUE = 0.5  # of the range of log rates: a wider interval says nothing of an optimum
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
    with threadpool_limits(limits=1, user_api="blas"):  # with more, waits take longer than the work
        line_SM, loss_DSM = _curves(fitted, rng)
    best_SD = np.take_along_axis(line_SM, loss_DSM.argmin(axis=2).T, axis=1)
    optima = tuple(map(_optimum, sizes, line_SM, best_SD))
    logs_S = np.log2([each.size for each in sizes])
    centred_S = logs_S - logs_S.mean()
    slope_D = centred_S @ best_SD / (centred_S @ centred_S)
    shift = Estimate.of_draws(slope_D)
    in_losses = np.exp if positive else np.positive
    loss_DM = in_losses(loss_DSM[:, -1])
    cost = _cost(sizes[-1], line_SM[-1], loss_DM, float(best_SD[0].mean()))
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


def _curves(sizes: Sequence[SizeTrials], rng: np.random.Generator) -> tuple[Array, Array]:
    """Return log2 of the rates (S x M) between those with a loss, and draws of the loss there."""
    x_N = np.concatenate([np.log2(each.rates) for each in sizes])
    loss_N = np.concatenate([each.losses for each in sizes])
    size_N = np.repeat(np.log2([each.size for each in sizes]), [len(each.rates) for each in sizes])
    ended_N = np.isfinite(loss_N)
    x_N, loss_N, size_N = x_N[ended_N], loss_N[ended_N], size_N[ended_N]
    line_SM = np.array([np.linspace(*_ends(each), POINTS) for each in sizes])
    low, span = x_N.min(), np.ptp(x_N)
    law = SizeLaw.of(LawTrials((x_N[:, None] - low) / span, 1, size_N[:, None], loss_N))
    size_MZ = np.repeat(np.log2([each.size for each in sizes]), POINTS)[:, None]
    draw_DM = law.draws((line_SM.reshape(-1, 1) - low) / span, size_MZ, DRAWS, rng)
    return line_SM, draw_DM.reshape(-1, *line_SM.shape)


def _ends(each: SizeTrials) -> tuple[float, float]:
    """Return log2 of the lowest and the highest rate with a loss."""
    rates = [rate for rate, loss in zip(each.rates, each.losses, strict=True) if loss < math.inf]
    return math.log2(min(rates)), math.log2(max(rates))


def _optimum(each: SizeTrials, line_M: Array, best_D: Array) -> Optimum:
    tried_low, tried_high = math.log2(min(each.rates)), math.log2(max(each.rates))
    lower = line_M[0] <= tried_low and (best_D == line_M[0]).mean() > EDGE
    higher = line_M[-1] >= tried_high and (best_D == line_M[-1]).mean() > EDGE
    return Optimum(
        size=each.size,
        rate=Estimate.of_draws(best_D).map(lambda log: 2.0**log),
        trials=len(each.losses),
        diverged=sum(loss == math.inf for loss in each.losses),
        beyond="lower" if lower else "higher" if higher else "",
    )


def _cost(each: SizeTrials, line_M: Array, loss_DM: Array, rate: float) -> Estimate:
    """Return what log2(rate) costs in comparison with the best, in losses.

    Farther from the best it is the loss between the next trials; infinite if the nearest diverged.
    """
    best_D = loss_DM.min(axis=1)
    if line_M[0] <= rate <= line_M[-1]:
        loss_D = loss_DM[:, int(np.abs(line_M - rate).argmin())]
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
