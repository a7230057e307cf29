"""The sweeps that a verb works with: those of this home, or those of a server."""

import time
from typing import TypeAlias

from hposvc import api
from hposvc.errors import OutOfReach
from hposvc.open_sweep import Record
from hposvc.remote.server import following
from hposvc.remote.server.connection import ServedSweeps

FOLLOW_S = 0.5  # seconds between two looks

Place: TypeAlias = api.Sweeps | ServedSweeps


def await_rest(place: Place, sweep: str, watching: api.Watching = api.unwatched) -> Record:
    """Wait until a sweep that another process drives has ended or is paused.

    Args:
        watching: what shows a server's sweep meanwhile; nothing shows one of this home.

    Raises:
        OutOfReach: the driver ended before the sweep did.
    """
    if isinstance(place, ServedSweeps):
        return following.await_rest(place, sweep, watching)
    follow = place.follow(sweep)
    while True:
        record = place.record_of(follow.row, follow.look)
        # A driver that starts Ray has the sweep, but has not begun it yet.
        is_starting = record.phase == "QUEUED" and record.driver == "alive"
        if record.phase != "RUNNING" and not is_starting:
            break
        time.sleep(FOLLOW_S)
    if not record.state.finished and record.phase != "PAUSED":
        raise OutOfReach(f"{sweep} is {record.phase}: no driver is at work", fix="resume() goes on")
    return record
