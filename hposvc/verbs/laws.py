"""`laws`: fit a scaling law to a sweep's trials; hposvc/analysis/model_size.py does it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from hposvc.analysis.scaling_law import Fit
from hposvc.estimate import INTERVAL
from hposvc.text import number
from hposvc.verbs.options import Shared, check_picture, plot, sweep_id, verb
from hposvc.views.console import make_table, show

if TYPE_CHECKING:
    from hposvc.analysis.model_size import BestUse


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
        from hposvc.reporting.charts.pictures import draw_law

        draw_law(law.fit, budget, plot)
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
