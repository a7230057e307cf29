"""`transfer`: check the best rate as models grow; hposvc/analysis/rate_transfer.py does it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType

from hposvc.estimate import INTERVAL
from hposvc.text import number
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, check_picture, plot, verb
from hposvc.views.console import make_table, show

if TYPE_CHECKING:
    from hposvc.analysis.rate_transfer import RateTransfer


@verb
@click.argument("sweeps", metavar="ID...", nargs=-1, required=True, shell_complete=complete_sweep)
@click.option("--over", default="width", metavar="NAME", help="Take sizes from this parameter.")
@click.option("--of", default="lr", metavar="NAME", help="Judge this parameter's best value.")
@plot
def transfer_command(
    shared: Shared, sweeps: tuple[str, ...], over: str, of: str, plot: Path | None
) -> None:
    """Check that the best learning rate stays as the model grows.

    The sweeps' trials must have three sizes or more, and several learning rates for each.
    """
    from hposvc.analysis import rate_transfer

    check_picture(plot)
    judged = rate_transfer.transfer_of([shared.open_sweep(sweep) for sweep in sweeps], of, over)
    if plot is not None:
        from hposvc.reporting.charts.pictures import draw_transfer

        draw_transfer(judged, plot)
    if not shared.json(judged.data()):
        show(*describe(judged))


def describe(judged: "RateTransfer") -> list[RenderableType]:
    """Return the table of optima, the answer with its reason, and the cost of a small model's."""
    table = make_table(judged.over, f"best {judged.of}", INTERVAL, "trials", "diverged")
    for best in judged.optima:
        beyond = f", perhaps {best.beyond}" if best.beyond else ""
        row = (number(best.size), number(best.rate.value), f"{best.rate.ends(number)}{beyond}")
        table.add_row(*row, f"{best.trials}", f"{best.diverged}")
    small, large = (number(judged.optima[at].size) for at in (0, -1))
    cost = f"The best {judged.of} of {judged.over} {small} costs {judged.cost.text(number)} of "
    cost += f"{judged.metric} at {judged.over} {large}."
    return [table, f"{judged.answer.capitalize()}: {judged.reason}.", cost]
