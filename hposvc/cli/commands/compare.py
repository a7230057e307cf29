"""The verb that compares sweeps, or groups of them."""

from typing import TYPE_CHECKING

import click

from hposvc.cli.app import open_sweep, verb
from hposvc.cli.completion import complete_sweep
from hposvc.cli.options import Shared
from hposvc.views.console import show

if TYPE_CHECKING:
    from hposvc.reporting.comparable import Cost


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
def compare(shared: Shared, sweeps: tuple[str, ...], by: tuple[str, ...], cost: "Cost") -> None:
    """Compare sweeps, or groups of them, at equal cost.

    It says which is better, with which probability, and how much sooner it gets there. The first
    one is what the others are held against.
    """
    from hposvc.reporting import comparison
    from hposvc.views.comparison import table, words

    opened = [open_sweep(shared, sweep) for sweep in sweeps]
    answer = comparison.compare(opened, by, cost)
    if not shared.json(answer.data()):
        show(table(answer), *words(answer))
