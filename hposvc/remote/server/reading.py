"""The events of all of a server's sweeps."""

from collections.abc import Iterator
from typing import Any

from hposvc.remote.server.connection import MAX_WAIT_S, PAGE, ServedSweeps


def feed(
    server: ServedSweeps, since: str | None = None, wait_s: float = MAX_WAIT_S
) -> Iterator[dict[str, Any]]:
    """Yield the events of all sweeps, as the server has them, for ever.

    Args:
        since: the cursor of an earlier event, in its key `cursor`; None: from the beginning.
            Only the last event of an answer has a cursor of its own; those before it have that
            of the answer before, so that none is lost.
        wait_s: for how long one request waits for the next event.
    """
    while True:
        page = server.http.get("events", {"since": since, "limit": PAGE}, wait_s)
        last = len(page["events"]) - 1
        for number, event in enumerate(page["events"]):
            yield {**event, "cursor": page["next"] if number == last else since}
        since = page["next"]
