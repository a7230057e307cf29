"""Draw the picture of a sweep in the README: `python -m hposvc.views.picture ID`."""

import io
import re
from pathlib import Path

import click
from rich.console import Console

from hposvc.api import Sweeps
from hposvc.journal.home import find
from hposvc.spec import thaw
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import Panels

WIDTH = 110  # characters


def state_at(sweeps: Sweeps, sweep: str, share: float) -> tuple[str, SweepState]:
    """Return a sweep's id, and its state after this share of its events."""
    row = find(sweeps.journal, sweep)
    state = SweepState(thaw(row.spec))
    events = [event for _, event in sweeps.journal.read(row.id)]
    for event in events[: round(share * len(events))]:
        state.apply(event)
    return row.id, state


def picture(sweep: str, state: SweepState) -> str:
    """Draw the live table as an SVG image."""
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
    """Return the SVG without fonts from the network, and with leading spaces preserved."""
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


@click.command()
@click.argument("sweep", metavar="ID")
@click.option("--share", default=0.6, help="Of the sweep's events that have happened.")
@click.option("--out", default="docs/live.svg", type=click.Path(path_type=Path))
def main(sweep: str, share: float, out: Path) -> None:
    """Draw the live table of a recorded sweep, as it was at some moment."""
    out.write_text(picture(*state_at(Sweeps.open(), sweep, share)))


if __name__ == "__main__":
    main()
