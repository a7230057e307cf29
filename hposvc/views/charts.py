"""Charts of training's cost. Only this module of the service imports matplotlib."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hposvc.analysis.scaling_law import Fit
from hposvc.analysis.worker_scaling import ScalingSpeed

GREY, DARK, BLUE, RED = "#b9bdc4", "#5b6270", "#2f7fb5", "#d1402f"
POINTS = 100  # points that draw a curve


def scaling(speeds: Sequence[ScalingSpeed], file: Path) -> None:
    """Draw samples per second by number of workers, beside the ideal line.

    The file's ending chooses the format.
    """
    succeeded = [run for run in speeds if run.samples_per_s is not None]
    workers = [run.workers for run in succeeded]
    rates = [run.samples_per_s or 0.0 for run in succeeded]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    if succeeded:
        axes.plot(
            [0, workers[-1]],
            [0, rates[0] / workers[0] * workers[-1]],
            color=GREY,
            label="ideal",
        )
    axes.plot(workers, rates, color=BLUE, marker="o", label="measured")
    for speed, rate in zip(succeeded, rates, strict=True):
        if speed.efficiency is not None:
            point = (speed.workers, rate)
            axes.annotate(f"{speed.efficiency:.0%}", point, (-34, -4), textcoords="offset points")
    axes.set(xlabel="workers", ylabel="samples per second", xticks=workers)
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(file)


def law(fit: Fit, budget: float | None, file: Path) -> None:
    """Draw a scaling law's points and fitted curves.

    If both the weights and the data vary, draw the best use of each compute budget too.
    """
    both = bool(fit.law.alpha and fit.law.beta)
    figure = Figure(figsize=(10 if both else 6, 4), layout="constrained")
    axes = figure.add_subplot(1, 2 if both else 1, 1)
    of_weights = bool(fit.law.alpha)
    groups = sorted({point.samples if of_weights else point.weights for point in fit.points})
    for rank, other_size in enumerate(groups):
        shade = (0.2 + 0.6 * rank / max(len(groups) - 1, 1), 0.45, 0.7)
        group = [p for p in fit.points if other_size == (p.samples if of_weights else p.weights)]
        sizes = [p.weights if of_weights else p.samples for p in group]
        axes.plot(sizes, [p.loss for p in group], "o", color=shade)
        line = np.geomspace(min(sizes), max(sizes), POINTS) if len(group) > 1 else np.array(sizes)
        pairs = [(size, other_size) if of_weights else (other_size, size) for size in line]
        axes.plot(line, [fit.law.loss(*pair) for pair in pairs], color=shade)
    axes.set(xscale="log", yscale="log", ylabel="loss")
    axes.set_xlabel("weights N, a line for each D" if of_weights else "data D")
    if both:
        _draw_optima(figure, fit, budget)
    figure.savefig(file)


def _draw_optima(figure: Figure, fit: Fit, budget: float | None) -> None:
    """Draw the best number of weights by compute, with the resamples' 95% band."""
    flops_spent = [6 * point.weights * point.samples for point in fit.points]
    flops = np.geomspace(min(flops_spent), max([*flops_spent, budget or 0]) * 10, POINTS)
    axes = figure.add_subplot(1, 2, 2)
    curves = np.array([[law.optimum(count)[0] for count in flops] for law in fit.laws])
    low, high = np.percentile(curves, (2.5, 97.5), axis=0)
    axes.fill_between(flops, low, high, color=GREY, alpha=0.5, label="95% interval")
    axes.plot(flops, [fit.law.optimum(count)[0] for count in flops], color=BLUE, label="best N")
    axes.plot(
        flops_spent,
        [point.weights for point in fit.points],
        "o",
        color=DARK,
        ms=3,
        label="trials",
    )
    if budget is not None:
        axes.plot([budget], [fit.law.optimum(budget)[0]], "o", color=RED, label="the budget's")
    axes.set(xscale="log", yscale="log", xlabel="compute 6 N D, FLOPs", ylabel="weights N")
    axes.legend(frameon=False)
