"""`compare`: compare sweeps, or groups of them; hposvc/reporting/comparison.py does it."""

import click
from rich.text import Text

from hposvc.reporting.comparison import compare
from hposvc.reporting.comparison_checks import Cost
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import make_table, show

STYLES = {"better": "bold green", "worse": "red", "open": ""}


@verb
@click.argument("sweeps", nargs=-1, required=True, metavar="ID...", shell_complete=complete_sweep)
@click.option(
    "--by",
    multiple=True,
    metavar="KEY",
    help="Compare groups of sweeps with the same value of this key of the spec: search.method.",
)
@click.option(
    "--cost",
    type=click.Choice(["hours", "trials", "time"]),
    default="hours",
    help="Compare at an equal amount of this; hours are GPU-hours or worker-hours.",
)
def compare_command(
    shared: Shared, sweeps: tuple[str, ...], by: tuple[str, ...], cost: Cost
) -> None:
    """Compare sweeps, or groups of them, at equal cost.

    It says which is better, with which probability, and how much sooner it gets there. The first
    one is what the others are held against.
    """
    answer = compare([shared.open_sweep(sweep) for sweep in sweeps], by, cost)
    if shared.json(answer.data()):
        return
    table = make_table(*answer.head)
    for row, standing in zip(answer.rows, answer.figures.standings, strict=True):
        table.add_row(*(Text(cell, STYLES[standing.verdict]) for cell in row))
    warnings = (Text(f"Mind: {warning}", "yellow") for warning in answer.warnings)
    show(table, *answer.sentences, *warnings)
