"""`laws`: fit a scaling law to a sweep's trials; hposvc/analysis/model_size.py does it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from hposvc.analysis.scaling_law import Fit
from hposvc.estimate import INTERVAL, Estimate
from hposvc.text import number
from hposvc.verbs.options import Shared, check_picture, plot, sweep_id, verb
from hposvc.views.console import make_table, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hposvc.analysis.model_size import BestUse


GREY, DARK, BLUE, RED = "#b9bdc4", "#5b6270", "#2f7fb5", "#d1402f"
POINTS = 100  # points that draw a curve


@verb
@sweep_id
@click.option(
    "--weights", metavar="NAME", help="Take a trial's weights N from this metric or parameter."
)
@click.option(
    "--data", metavar="NAME", help="Take the amount of data D from this metric or parameter."
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    help="Say how to spend this many FLOPs, 6 N D.",
)
@plot
def laws_command(
    shared: Shared,
    sweep: str,
    weights: str | None,
    data: str | None,
    budget: float | None,
    plot: Path | None,
) -> None:
    """Fit a scaling law to a sweep's trials.

    It gives the loss by weights and data, with intervals.

    Without --weights and --data, both are computed from the Task: the number of its parameters, and
    the number of loss values (tokens, for a language model) that it was trained on.
    """
    from hposvc.analysis import model_size

    check_picture(plot)
    names = model_size.Names(weights, data)
    law = model_size.law_of(shared.open_sweep(sweep), names, budget)
    if plot is not None:
        draw(law.fit, budget, plot)
    if not shared.json(law.data()):
        show(*describe(law.fit, law.budget))


def describe(fit: Fit, use: "BestUse | None") -> list[RenderableType]:
    """Return a law's coefficients with their intervals, and the best use of a budget."""
    table = make_table("coefficient", "value", INTERVAL)
    signs = {"floor": "E", "a": "A", "alpha": "alpha", "b": "B", "beta": "beta"}
    for name, sign in signs.items():
        value = getattr(fit.law, name)
        if value:
            table.add_row(sign, number(value), fit.coefficients[name].ends(number))
    parts: list[RenderableType] = [formula(fit), table]
    if use is not None:
        short = partial(number, digits=3)
        best = make_table(f"for {use.flops:.3g} FLOPs", "best", INTERVAL)
        for name, size in (("weights N", use.weights), ("data D", use.samples)):
            best.add_row(name, short(size.value), size.ends(short))
        best.add_row("loss", number(fit.law.loss(use.weights.value, use.samples.value)), "")
        parts.append(best)
    return parts


def formula(fit: Fit) -> str:
    """Return the law as a formula, with the terms that were fitted."""
    terms = ["E", "A/N^alpha" if fit.law.alpha else "", "B/D^beta" if fit.law.beta else ""]
    return f"loss = {' + '.join(filter(None, terms))}, fitted to {len(fit.points)} points"


def draw(fit: Fit, budget: float | None, file: Path) -> None:
    """Draw a scaling law's points and fitted curves.

    If both the weights and the data vary, draw the best use of each compute budget too.
    """
    import numpy as np
    from matplotlib.figure import Figure

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


def _draw_optima(figure: "Figure", fit: Fit, budget: float | None) -> None:
    """Draw the best number of weights by compute, with the band of the resamples."""
    import numpy as np

    flops_spent = [6 * point.weights * point.samples for point in fit.points]
    flops = np.geomspace(min(flops_spent), max([*flops_spent, budget or 0]) * 10, POINTS)
    axes = figure.add_subplot(1, 2, 2)
    curves = np.array([[law.optimum(count)[0] for count in flops] for law in fit.laws])
    best = np.array([fit.law.optimum(count)[0] for count in flops])
    bands = [Estimate.of_draws(drawn, value) for drawn, value in zip(curves.T, best, strict=True)]
    low, high = [band.low for band in bands], [band.high for band in bands]
    axes.fill_between(flops, low, high, color=GREY, alpha=0.5, label=INTERVAL)
    axes.plot(flops, best, color=BLUE, label="best N")
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
