"""Draws docs/watch.svg, the screen of `watch` amid a simulated sweep, for its page.

`python docs/watch.py` needs no network and no Ray.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any

import pictures

from hposvc import spec as specs
from hposvc.events import DriverState, Event
from hposvc.journal.follow import Follow
from hposvc.journal.journal import SweepRow
from hposvc.state.sweep import SweepState
from hposvc.views.watch.screen import WatchApp

PICTURE = Path(__file__).with_name("watch.svg")
SHARE = 0.6  # of the sweep's events
SIZE = (96, 30)
CELL = 12.2  # width of a character in the picture
ROW = re.compile(
    r'<text( class="[^"]*-r\d+") x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+"'
    r"([^>]*)>([^<]*)</text>"
)
WORD = re.compile(r"[!-~]+(?: [!-~]+)*|[^ -~]+")  # other characters may come from another font


class Recorded:
    """Events of a sweep, of which no more come."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events

    def read(self, sweep: str, after: int) -> Iterator[tuple[int, Event]]:
        """Return the events after a number, each with its number."""
        return iter([*enumerate(self.events, 1)][after:])

    def driver_of(self, row: SweepRow) -> DriverState:
        """Return that a driver is at work."""
        return "alive"

    def log_parts(
        self, row: SweepRow, trial: str, rank: int | None, most: int, *of: int | None
    ) -> list[dict[str, Any]]:
        """Return no log."""
        return []


def sweep() -> tuple[Recorded, Follow[SweepState]]:
    """Return a sweep of ASHA that has not ended yet."""
    spec = specs.load(
        {
            "metric": {"name": "val/loss", "goal": "minimize"},
            "parameters": {
                "lr": {"min": 1e-4, "max": 1.0, "log": True},
                "dropout": {"min": 0.0, "max": 0.6},
            },
            "fidelity": {"min": 1, "max": 27, "unit": "epoch"},
            "search": "random",
            "scheduler": "asha",
            "trials": {"max": 60, "parallel": 8},
            "engine": {"type": "simulate", "curve": "watch:curve"},
            "budget": {"wall": "2h"},
        }
    )
    events = pictures.simulate(spec)
    shown = Recorded(events[: round(SHARE * len(events))])
    row = SweepRow("digits-3f2a1c", "digits", "demo", 0.0, specs.dump(spec), {})
    follow = Follow(shown, row, lambda: SweepState(spec))
    follow.look()
    return shown, follow


def curve(params: dict[str, float], step: int) -> tuple[dict[str, float], float]:
    """Return the loss of the pictures of schedulers, in epochs of half a minute."""
    metrics, seconds = pictures.curve(params, step)
    return {"val/loss": metrics["loss"]}, 25 * seconds


def in_columns(svg: str) -> str:
    """Return a screen whose words have places of their own.

    Textual writes a row's cells as one text. Where the font lacks one of its characters, programs
    that take all of that text from another font shift the words behind it.
    """

    def split(row: re.Match[str]) -> str:
        before, x, y, after, text = row.groups()
        return "\n".join(
            f'<text{before} x="{float(x) + CELL * word.start():g}" y="{y}" '
            f'textLength="{CELL * len(word[0]):g}"{after}>{escape(word[0])}</text>'
            for word in WORD.finditer(unescape(text).replace("\N{NO-BREAK SPACE}", " "))
        )

    return ROW.sub(split, svg)


async def screen() -> str:
    """Return the screen as an SVG, without fonts from the network."""
    app = WatchApp(*sweep(), lambda verb, trial, changes: None)  # type: ignore[arg-type, return-value]
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("down", "down", "down")
        await app.workers.wait_for_complete()
        await pilot.pause()
        svg = app.export_screenshot(title="hposvc watch digits")
    svg = re.sub(r"@font-face \{[^}]*\}\s*", "", svg)
    return in_columns(svg.replace("<svg ", '<svg xml:space="preserve" ', 1))


if __name__ == "__main__":
    PICTURE.write_text(asyncio.run(screen()))
