"""The picture of a sweep in the README, from its journal: `python -m hposvc.views.picture ID`."""

import io
import re
from pathlib import Path

import click
from rich.console import Console

from hposvc.api import Sweeps
from hposvc.home import find
from hposvc.spec import load
from hposvc.state import SweepState
from hposvc.views.panel import Panels

WIDTH = 110  # characters


def moment(sweeps: Sweeps, sweep: str, share: float) -> tuple[str, SweepState]:
    """A sweep as it was when this share of its events had happened."""
    row = find(sweeps.journal, sweep)
    state = SweepState(load(row.spec))
    events = [event for _, event in sweeps.journal.read(row.id)]
    for event in events[: round(share * len(events))]:
        state.apply(event)
    return row.id, state


def picture(sweep: str, state: SweepState) -> str:
    """The live table as an SVG image."""
    target = Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=WIDTH,
        record=True,
        markup=False,
        highlight=False,
    )
    target.print(Panels(sweep).draw(state, state.elapsed_s))
    return portable(target.export_svg(title=f"hposvc: {state.spec.name}"))


def portable(svg: str) -> str:
    """The same picture, without fonts from the network, and with the spaces that lead a text."""
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


@click.command()
@click.argument("sweep", metavar="ID")
@click.option("--share", default=0.6, help="Of the sweep's events that have happened.")
@click.option("--out", default="docs/live.svg", type=click.Path(path_type=Path))
def main(sweep: str, share: float, out: Path) -> None:
    """Draw the live table of a recorded sweep, as it was at some moment."""
    out.write_text(picture(*moment(Sweeps.open(), sweep, share)))


if __name__ == "__main__":
    main()
