"""`sizes`: what a sweep over sizes found; hposvc/analysis/size_search.py judges it."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from hposvc.text import number
from hposvc.verbs.options import Shared, check_picture, plot, sweep_id, verb
from hposvc.views.console import make_table, show

if TYPE_CHECKING:
    from hposvc.analysis.size_search import SizeSearch


@verb
@sweep_id
@plot
def sizes_command(shared: Shared, sweep: str, plot: Path | None) -> None:
    """Say how the best values move as the model grows.

    For a sweep with `scale`: the best values by size, by the law fitted to its trials, and how near
    to the best of the largest size what was trained there is.
    """
    from hposvc.analysis import size_search

    check_picture(plot)
    found = size_search.sizes_of(shared.open_sweep(sweep))
    if plot is not None:
        from hposvc.reporting.charts.pictures import draw_sizes

        draw_sizes(found, plot)
    if not shared.json(found.data()):
        show(*describe(found))


def describe(found: "SizeSearch") -> list[RenderableType]:
    """Return the table of the best values by size, and the answer."""
    names = [*found.sizes[-1].best]
    table = make_table(found.over, "trials", *(f"best {name}" for name in names))
    for each in found.sizes:
        best = [each.best[name].text("{:.3g}".format) for name in names if name in each.best]
        table.add_row(number(float(each.size)), f"{len(each.configs)}", *best)  # type: ignore[arg-type]
    values = ", ".join(f"{name} {value:.3g}" for name, value in _numbers(found).items())
    proposal = f"The law expects the best at {found.over} {found.sizes[-1].size} with {values}."
    return [table, found.sentence, proposal]


def _numbers(found: "SizeSearch") -> dict[str, float]:
    return {name: best.value for name, best in found.sizes[-1].best.items()}
