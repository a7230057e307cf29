"""Draws docs/live.svg, the picture of the README.

`python docs/live.py ID` draws the live table of a recorded sweep.
"""

import argparse
import io
import re
from pathlib import Path

from rich.console import Console

from hposvc.api import Sweeps
from hposvc.journal.home import find
from hposvc.spec import thaw
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import Panels

PICTURE = Path(__file__).with_name("live.svg")
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
    """Draw the live table as an SVG, without fonts from the network, leading spaces preserved."""
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
    svg = target.export_svg(title=f"hposvc: {state.spec.name}")
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", metavar="ID")
    parser.add_argument("--share", type=float, default=0.6, help="of its events")
    options = parser.parse_args()
    PICTURE.write_text(picture(*state_at(Sweeps.open(), options.sweep, options.share)))
