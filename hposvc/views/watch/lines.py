"""`watch` without a terminal: the plain lines of `run`, until the sweep rests."""

import sys
import time

from hposvc.events import Event
from hposvc.journal.follow import Follow
from hposvc.open_sweep import SweepSource
from hposvc.state.sweep import SweepState
from hposvc.views.console import console
from hposvc.views.live import PlainLines

LOOK_S = 0.5  # between two looks at the journal


def print_lines(source: SweepSource, follow: Follow[SweepState], starts_drivers: bool) -> None:
    """Print what happens in a sweep until it has ended or paused, or nobody drives it.

    Args:
        starts_drivers: a server starts a driver for the sweep, so that it goes on without one.
    """
    lines = PlainLines(console(sys.stdout))
    state = follow.look()
    lines.skip(state)
    lines.sum_up(state)
    if state.finished:
        lines.say_end(state)
    while not state.finished:
        # First the driver: one that ends now writes its events before it lets go.
        driver = source.driver_of(follow.row)
        new: list[Event] = []
        state = follow.look(new.append)
        lines.on_events(state, new)
        if state.state == "PAUSED":
            lines.say(f"paused; go on with: hposvc resume {follow.row.id}")
            return
        if not new and driver != "alive" and not starts_drivers:
            lines.say(f"no driver is at work; go on with: hposvc resume {follow.row.id}")
            return
        waiting = None if new else source.waiting_of(follow.row)
        if waiting is not None:
            lines.say(waiting.describe())
        if not new:
            time.sleep(LOOK_S)
