"""The pictures that `--plot` writes of laws, scaling and transfer, by matplotlib."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from hposvc.analysis.rate_transfer import RateTransfer
from hposvc.analysis.scaling_law import Fit
from hposvc.analysis.size_search import SizeSearch
from hposvc.analysis.worker_scaling import ScalingSpeed
from hposvc.estimate import INTERVAL, Estimate

GREY, DARK, BLUE, RED = "#b9bdc4", "#5b6270", "#2f7fb5", "#d1402f"
POINTS = 100  # points that draw a curve


@contextmanager
def _picture(file: Path, panels: int = 1) -> Iterator[list[Axes]]:
    """Give the axes of empty panels, side by side, and write them to a file at the end.

    The file's ending chooses the format.
    """
    figure = Figure(figsize=(2 + 4 * panels, 4), layout="constrained")
    all_axes = [figure.add_subplot(1, panels, 1 + number) for number in range(panels)]
    yield all_axes
    for axes in all_axes:
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False)
    figure.savefig(file)


def _shade(rank: int, count: int) -> tuple[float, float, float]:
    """Return the colour of one of several groups in order."""
    return 0.2 + 0.6 * rank / max(count - 1, 1), 0.45, 0.7


def draw_law(fit: Fit, budget: float | None, file: Path) -> None:
    """Draw a scaling law's points and fitted curves.

    If both the weights and the data vary, draw the best use of each compute budget too.
    """
    of_weights, both = bool(fit.law.alpha), bool(fit.law.alpha and fit.law.beta)
    groups = sorted({point.samples if of_weights else point.weights for point in fit.points})
    with _picture(file, panels=2 if both else 1) as (axes, *others):
        for rank, other in enumerate(groups):
            shade = _shade(rank, len(groups))
            group = [p for p in fit.points if other == (p.samples if of_weights else p.weights)]
            sizes = [p.weights if of_weights else p.samples for p in group]
            axes.plot(sizes, [p.loss for p in group], "o", color=shade)
            line = np.geomspace(min(sizes), max(sizes), POINTS) if len(group) > 1 else sizes
            pairs = [(size, other) if of_weights else (other, size) for size in line]
            axes.plot(line, [fit.law.loss(*pair) for pair in pairs], color=shade)
        axes.set(xscale="log", yscale="log", ylabel="loss")
        axes.set_xlabel("weights N, a line for each D" if of_weights else "data D")
        for beside in others:
            _draw_optima(beside, fit, budget)


def _draw_optima(axes: Axes, fit: Fit, budget: float | None) -> None:
    """Draw the best number of weights by compute, with the band of the resamples."""
    flops_spent = [6 * point.weights * point.samples for point in fit.points]
    flops = np.geomspace(min(flops_spent), max([*flops_spent, budget or 0]) * 10, POINTS)
    curves = np.array([[law.optimum(count)[0] for count in flops] for law in fit.laws])
    best = np.array([fit.law.optimum(count)[0] for count in flops])
    bands = [Estimate.of_draws(drawn, value) for drawn, value in zip(curves.T, best, strict=True)]
    low, high = [band.low for band in bands], [band.high for band in bands]
    axes.fill_between(flops, low, high, color=GREY, alpha=0.5, label=INTERVAL)
    axes.plot(flops, best, color=BLUE, label="best N")
    weights = [point.weights for point in fit.points]
    axes.plot(flops_spent, weights, "o", color=DARK, ms=3, label="trials")
    if budget is not None:
        axes.plot([budget], [fit.law.optimum(budget)[0]], "o", color=RED, label="the budget's")
    axes.set(xscale="log", yscale="log", xlabel="compute 6 N D, FLOPs", ylabel="weights N")


def draw_scaling(speeds: Sequence[ScalingSpeed], file: Path) -> None:
    """Draw samples per second by number of workers, beside the ideal line."""
    rates = {speed: speed.samples_per_s for speed in speeds if speed.samples_per_s is not None}
    workers = [speed.workers for speed in rates]
    with _picture(file) as (axes,):
        if rates:
            ideal = [0, next(iter(rates.values())) / workers[0] * workers[-1]]
            axes.plot([0, workers[-1]], ideal, color=GREY, label="ideal")
        axes.plot(workers, [*rates.values()], color=BLUE, marker="o", label="measured")
        for speed, rate in rates.items():
            if speed.efficiency is not None:
                text, point = f"{speed.efficiency:.0%}", (speed.workers, rate)
                axes.annotate(text, point, (-34, -4), textcoords="offset points")
        axes.set(xlabel="workers", ylabel="samples per second", xticks=workers)
        axes.set(xlim=(0, None), ylim=(0, None))


def draw_transfer(judged: RateTransfer, file: Path) -> None:
    """Draw the losses by rate, a colour for each size, with each size's best rate."""
    with _picture(file) as (axes,):
        for rank, (size, best) in enumerate(zip(judged.sizes, judged.optima, strict=True)):
            shade, order = _shade(rank, len(judged.sizes)), np.argsort(size.rates)
            rates, losses = np.array(size.rates)[order], np.array(size.losses)[order]
            axes.plot(rates, losses, "o-", ms=3, color=shade, label=f"{judged.over} {best.size:g}")
            axes.axvspan(best.rate.low, best.rate.high, color=shade, alpha=0.15)
            axes.axvline(best.rate.value, color=shade)
        losses = np.concatenate([size.losses for size in judged.sizes])
        finite = losses[np.isfinite(losses)]
        low, high = finite.min(), np.quantile(finite, 0.8)
        axes.set(xscale="log", xlabel=judged.of, ylabel=f"loss by {judged.metric}")
        axes.set(ylim=(low - 0.05 * (high - low), high), title=judged.answer)


def draw_sizes(found: SizeSearch, file: Path) -> None:
    """Draw the best value of each number by size, with its interval, and the trials."""
    names = [*found.sizes[-1].best]
    sizes = [float(each.size) for each in found.sizes]  # type: ignore[arg-type]
    with _picture(file, panels=max(1, len(names))) as panels:
        for name, axes in zip(names, panels, strict=False):
            best = [each.best[name] for each in found.sizes]
            low, high = [each.low for each in best], [each.high for each in best]
            axes.fill_between(sizes, low, high, color=GREY, alpha=0.5, label=INTERVAL)
            values = [each.value for each in best]
            axes.plot(sizes, values, "o-", color=BLUE, label="best by the law")
            axes.set(xscale="log", xlabel=found.over, ylabel=name)
            axes.set_xticks(sizes, [f"{size:g}" for size in sizes], minor=False)
            axes.set_xticks([], minor=True)
            if name in found.logarithmic:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_minor_formatter(NullFormatter())
            for size, each in zip(sizes, found.sizes, strict=True):
                tried = [float(params[name]) for params in each.configs if name in params]  # type: ignore[arg-type]
                colors = [(*to_rgb(DARK), shade) for shade in np.linspace(0.9, 0.1, len(tried))]
                label = "trials, the best dark" if size == sizes[0] else None
                column = [size] * len(tried)
                axes.scatter(column, tried, 12, colors, zorder=3, label=label)
