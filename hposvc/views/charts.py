"""Pictures of what training costs. The one import of matplotlib in the service."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hposvc.laws import Fit
from hposvc.scaling import Speed

GREY, DARK, BLUE, RED = "#b9bdc4", "#5b6270", "#2f7fb5", "#d1402f"
POINTS = 100  # of a curve


def scaling(speeds: Sequence[Speed], file: Path) -> None:
    """Samples a second by workers, beside what would be ideal; the file's ending says its kind."""
    ran = [each for each in speeds if each.samples_per_s is not None]
    workers = [each.workers for each in ran]
    rates = [each.samples_per_s or 0.0 for each in ran]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    if ran:
        axes.plot(
            [0, workers[-1]],
            [0, rates[0] / workers[0] * workers[-1]],
            color=GREY,
            label="ideal",
        )
    axes.plot(workers, rates, color=BLUE, marker="o", label="measured")
    for speed, rate in zip(ran, rates, strict=True):
        if speed.efficiency is not None:
            place = (speed.workers, rate)
            axes.annotate(f"{speed.efficiency:.0%}", place, (-34, -4), textcoords="offset points")
    axes.set(xlabel="workers", ylabel="samples per second", xticks=workers)
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(file)


def law(fit: Fit, budget: float | None, file: Path) -> None:
    """The points and the fitted curves; where both sizes vary, the best use of each budget too."""
    both = bool(fit.law.alpha and fit.law.beta)
    figure = Figure(figsize=(10 if both else 6, 4), layout="constrained")
    axes = figure.add_subplot(1, 2 if both else 1, 1)
    of_weights = bool(fit.law.alpha)
    groups = sorted({each.samples if of_weights else each.weights for each in fit.points})
    for place, other in enumerate(groups):
        shade = (0.2 + 0.6 * place / max(len(groups) - 1, 1), 0.45, 0.7)
        ours = [p for p in fit.points if other == (p.samples if of_weights else p.weights)]
        sizes = [p.weights if of_weights else p.samples for p in ours]
        axes.plot(sizes, [p.loss for p in ours], "o", color=shade)
        line = np.geomspace(min(sizes), max(sizes), POINTS) if len(ours) > 1 else np.array(sizes)
        pairs = [(each, other) if of_weights else (other, each) for each in line]
        axes.plot(line, [fit.law.loss(*pair) for pair in pairs], color=shade)
    axes.set(xscale="log", yscale="log", ylabel="loss")
    axes.set_xlabel("weights N, a line for each D" if of_weights else "data D")
    if both:
        _optima(figure, fit, budget)
    figure.savefig(file)


def _optima(figure: Figure, fit: Fit, budget: float | None) -> None:
    """The best number of weights by compute, with the band of the resamples."""
    spent = [6 * each.weights * each.samples for each in fit.points]
    flops = np.geomspace(min(spent), max([*spent, budget or 0]) * 10, POINTS)
    axes = figure.add_subplot(1, 2, 2)
    curves = np.array([[law.optimum(each)[0] for each in flops] for law in fit.laws])
    low, high = np.percentile(curves, (2.5, 97.5), axis=0)
    axes.fill_between(flops, low, high, color=GREY, alpha=0.5, label="95% interval")
    axes.plot(flops, [fit.law.optimum(each)[0] for each in flops], color=BLUE, label="best N")
    axes.plot(spent, [each.weights for each in fit.points], "o", color=DARK, ms=3, label="trials")
    if budget is not None:
        axes.plot([budget], [fit.law.optimum(budget)[0]], "o", color=RED, label="the budget's")
    axes.set(xscale="log", yscale="log", xlabel="compute 6 N D, FLOPs", ylabel="weights N")
    axes.legend(frameon=False)
