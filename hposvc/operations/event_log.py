"""The events of a sweep as data, for programs that follow it."""

import json
import time
from typing import Any

from hposvc import api
from hposvc.events import to_json
from hposvc.text import spelled

POLL_S = 0.2  # between two looks into the journal


def events(sweeps: api.Sweeps, sweep: str, since: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
    """Return the events of a sweep after a number, as a server does.

    Args:
        since: 0: all events.
        wait_s: for how long to wait for the first, while the sweep is not over.

    Returns:
        `events`; `next`, the number after which to ask for more; and whether the sweep is `over`,
        so that there will be no more.

    Raises:
        NotFound: there is no such sweep.
    """
    deadline = time.monotonic() + wait_s
    follow = sweeps.follow(sweep)
    while True:
        record = sweeps.record_of(follow)
        over = record.state.finished and record.driver != "alive"
        if follow.seq > since or over or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    matching = [
        {
            "sweep": record.row.id,
            "seq": seq,
            "kind": event.kind,
            "time": event.time,
            "data": spelled(json.loads(to_json(event))),
        }
        for seq, event in sweeps.journal.read(record.row.id, since)
    ]
    return {"events": matching, "next": matching[-1]["seq"] if matching else since, "over": over}
