"""`watch` without a terminal: the plain lines of `run`, until the sweep rests."""

import sys
import time

from hposvc import api
from hposvc.events import Event
from hposvc.views.console import console
from hposvc.views.live import PlainLines

LOOK_S = 0.5  # between two looks at the journal


def follow(watched: api.Watched, starts_drivers: bool) -> None:
    """Print what happens in a sweep until it has ended or paused, or nobody drives it.

    Args:
        starts_drivers: a server starts a driver for the sweep, so that it goes on without one.
    """
    lines = PlainLines(console(sys.stdout))
    state = watched.look()
    lines.skip(state)
    lines.sum_up(state)
    if state.finished:
        lines.say_end(state)
    while not state.finished:
        # First the driver: one that ends now writes its events before it lets go.
        driver = watched.source.driver_of(watched.row)
        new: list[Event] = []
        state = watched.look(new.append)
        lines.turn(state, new)
        if state.state == "PAUSED":
            lines.say(f"paused; go on with: hposvc resume {watched.row.id}")
            return
        if not new and driver != "alive" and not starts_drivers:
            lines.say(f"no driver is at work; go on with: hposvc resume {watched.row.id}")
            return
        queue = watched.source.queue_of(watched.row) if not new and driver != "alive" else None
        if queue is not None:
            lines.say(queue.describe())
        if not new:
            time.sleep(LOOK_S)
