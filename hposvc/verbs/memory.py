"""`memory`: forecast a trial's memory for each strategy; hposvc/analysis/memory.py does it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from hposvc.text import NONE, format_size
from hposvc.verbs.options import Shared, read_spec, settings, spec_file, verb
from hposvc.views.console import make_table, show

if TYPE_CHECKING:
    from hposvc.analysis.memory import StrategyForecast

LONGEST = 300  # characters of a refusal shown in a table; -o json has the full text
FITS = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text(NONE)}


@verb
@spec_file
@settings
@click.option(
    "--workers", type=click.IntRange(1), help="Assume N workers a trial; by default the spec's."
)
@click.option(
    "--gpu-memory",
    metavar="SIZE",
    help="Compare with a GPU's memory: 80G, 79GiB, or a name: h100, a100-80g.",
)
@click.option(
    "--measure", is_flag=True, help="Measure it too, in two updates by the spec's own strategy."
)
def memory_command(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    workers: int | None,
    gpu_memory: str | None,
    measure: bool,
) -> None:
    """Forecast a trial's memory for each strategy.

    The configuration is the first of `initial`, or the middle of the space.
    """
    from hposvc.analysis.memory import report

    answer = report(read_spec(spec, sets), workers, gpu_memory, measure)
    if not shared.json(answer.data()):
        show(table(answer.rows, answer.limit), *_remarks(answer.rows, answer.measured))


def table(rows: Sequence["StrategyForecast"], limit: int | None) -> Table:
    """Return the table of forecasts, one row per strategy; the spec's own strategy is marked."""
    made = make_table("", "strategy", "workers", "parameters", "gradients", "optimizer")
    for name in ("activations", "other", "peak", "when", "fits"):
        made.add_column(name)
    for row in rows:
        forecast, variant = row.forecast, row.variant
        style = "bold" if variant.chosen else ""
        first_cells = ["→" if variant.chosen else "", Text(variant.name, style), str(variant.ranks)]
        if forecast is None:
            made.add_row(*first_cells, *([NONE] * 8))
            continue
        sizes = (forecast.parameters, forecast.gradients, forecast.optimizer, forecast.activations)
        about = "" if forecast.exact else "about "
        made.add_row(
            *first_cells,
            *map(format_size, (*sizes, forecast.other)),
            Text(f"{about}{format_size(forecast.peak)}", style),
            forecast.fullest,
            FITS[None if limit is None else forecast.fits(limit)],
        )
    return made


def _remarks(rows: Sequence["StrategyForecast"], measured: int | None) -> Iterator[str]:
    """Yield the refusals, cut to a length for a glance, and what two updates took in memory."""
    for row in rows:
        if row.refusal:
            ellipsis = "…" * (len(row.refusal) > LONGEST)
            yield f"{row.variant.name}: {row.refusal[:LONGEST]}{ellipsis}"
    if measured is not None:
        forecast = next(row.forecast for row in rows if row.variant.chosen)
        share = "" if forecast is None else f"{(forecast.peak / measured - 1):+.1%} of it"
        yield f"measured: {format_size(measured)}{share and f'; the forecast is {share}'}"
