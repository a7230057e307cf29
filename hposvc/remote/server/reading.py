"""Read a server's sweeps: the list, one of them, events, logs, and checks of the way there."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hposvc import api
from hposvc.analysis import reproduction
from hposvc.errors import Denied, NotFound, OutOfReach
from hposvc.events import Event
from hposvc.journal.journal import SweepRow
from hposvc.operations.doctor import Check
from hposvc.remote.server.connection import MAX_WAIT_S, PAGE, Server, place, to_record
from hposvc.remote.submit import Listing

LOG_BYTES = 2**20  # of a log in one answer


def ls(
    server: Server, project: str | None = None, tag: str | None = None, since: float | None = None
) -> Listing:
    """List all sweeps, newest first, like `client.ls`."""
    listed: list[dict[str, Any]] = []
    cursor = None
    while True:
        query = {"project": project, "tag": tag, "since": since, "cursor": cursor}
        page = server.http.get("sweeps", {**query, "limit": PAGE})
        listed += page["sweeps"]
        cursor = page["next"]
        if cursor is None:
            rows = [{key: row[key] for key in row if key != "owner"} for row in listed]
            return Listing(rows, [], {})


def events(server: Server, sweep: str, since: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
    """Return a sweep's events after a number as data, like `event_log.events`."""
    pages = list(server.pages(sweep, since, wait_s))
    return {**pages[-1], "events": [event for page in pages for event in page["events"]]}


def feed(
    server: Server, since: str | None = None, wait_s: float = MAX_WAIT_S
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


def watch(server: Server, name: str) -> api.Watched:
    """Return a server's sweep that can be read repeatedly, like `client.watch`."""
    return server.watch(name)


def open_sweep(server: Server, name: str, address: str | None = None) -> "ServerSweep":
    """Return a sweep to be read, by its id, the beginning of its id, or `last`."""
    return ServerSweep(server, name)


@dataclass(frozen=True)
class ServerSweep:
    """A sweep whose journal is a server's."""

    server: Server
    name: str  # its id, the beginning of the id, or `last`

    def record(self) -> api.Record:
        """Read the sweep from its journal."""
        facts = self.server.facts(self.name)
        watched = self.server.fold(facts)
        return to_record(watched.row, watched.look(), facts)

    def history(self) -> tuple[SweepRow, list[Event]]:
        """Return the sweep's row, and all its events."""
        row = self.server.watch(self.name).row
        return row, [event for _, event in self.server.read(row.id, 0)]

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        """Return the ranks' logs as {trial, order, rank, path, text}; see `api.logs`."""
        return [
            {key: log[key] for key in ("trial", "order", "rank", "path")}
            | {"text": log["text"] if log["offset"] == 0 else self._whole_text(log)}
            for log in self.list_logs(trial, rank, LOG_BYTES)
        ]

    def list_logs(self, trial: str | None, rank: int | None, tail: int) -> list[dict[str, Any]]:
        """Return the ranks' logs, each with at most so many of its last bytes."""
        query = {"rank": rank, "tail": tail}
        return list(self.server.http.get(place(self.name, "logs", trial), query)["logs"])

    def read_log(self, log: Mapping[str, Any], offset: int) -> Iterator[tuple[str, int]]:
        """Yield the text of a log from a byte on, each part with the place of its end."""
        while offset < log["next"]:
            query = {"rank": log["rank"], "order": log["order"], "offset": offset}
            where = place(self.name, "logs", log["trial"])
            parts = self.server.http.get(where, {**query, "tail": LOG_BYTES})["logs"]
            if not parts or parts[0]["next"] == offset:  # deleted; or half a character
                return
            offset = parts[0]["next"]
            yield parts[0]["text"], offset

    def _whole_text(self, log: Mapping[str, Any]) -> str:
        return "".join(text for text, _ in self.read_log(log, 0))


def compare_again(server: Server, record: api.Record) -> reproduction.Comparison | None:
    """Return a reproduction's verdict; None: the sweep is none, or the original went on."""
    if reproduction.trial_of(record.row) is None:
        return None
    with suppress(NotFound):
        data = server.http.get(place(record.row.id, "repro"))
        return reproduction.Comparison(**{**data, "doubts": tuple(data["doubts"])})
    return None


def examine(server: Server, deep: bool = False, address: str | None = None) -> Iterator[Check]:
    """Yield checks of the way to the server, like `doctor.examine`."""
    try:
        server.http.get("/readyz")
    except OutOfReach as error:
        yield Check("server", "fail", f"{error}", "hposvc serve, on its machine")
        return
    yield Check("server", "ok", f"{server.http.url} answers")
    try:
        server.http.get("sweeps", {"limit": 1})
    except Denied as error:
        yield Check("token", "fail", f"{error}", "ask for one: hposvc token create")
    else:
        yield Check("token", "ok", "the server lets this user read sweeps")
