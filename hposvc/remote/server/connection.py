"""A server as a source of sweeps: their facts, their events, and operations.

The journal is read as events, of which only new ones are fetched, and folded here: so every view
shows a server's sweep as it shows one of this machine.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hposvc import spec as specs
from hposvc.errors import NotFound
from hposvc.events import DriverState, Event
from hposvc.journal.follow import Follow
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.journal.waiting import SweepWait
from hposvc.open_sweep import Record
from hposvc.operation import P, R, ServedFunction
from hposvc.remote.http import Http, error_of, find_token
from hposvc.remote.server.event_data import event_from_data
from hposvc.state.sweep import SweepState

PAGE = 1000  # events, or sweeps, in one answer
MAX_WAIT_S = 60.0  # for which a server lets one request wait
POLL_S = 0.5  # between two looks at an operation, or at logs


@dataclass(frozen=True)
class ServedSweeps:
    """A server, whose sweeps' journals are read as those of a home."""

    http: Http
    home: Home  # of this machine; caches what long journals come to
    wait_s: float = 0.0  # for how long a read waits for the first new event

    @classmethod
    def at(cls, url: str, token: str | None = None, home: Path | None = None) -> "ServedSweeps":
        """Return the server at a URL.

        Args:
            token: None: see `find_token`.
            home: None: HPOSVC_HOME, or ~/.hposvc.

        Raises:
            SpecError: the URL is none of a server, or the file of the token can't be read.
        """
        return cls(Http(url, token or find_token()), Home.of(home))

    def read(self, sweep: str, after: int) -> Iterator[tuple[int, Event]]:
        """Yield a sweep's events after a number, each with its number."""
        for page in self.pages(sweep, after, self.wait_s):
            for event in page["events"]:
                yield event["seq"], event_from_data(event["kind"], event["time"], event["data"])

    def record_of(self, row: SweepRow, look: Callable[[], SweepState]) -> Record:
        """Return a sweep as its journal has it now; the next look changes the record's state."""
        facts = self.facts(row.id)  # first: a driver ending now writes its events
        return to_record(row, look(), facts)

    def driver_of(self, row: SweepRow) -> DriverState:
        """Return whether a driver is at work on a sweep."""
        driver: DriverState = self.status(row.id)["driver"]
        return driver

    def waiting_of(self, row: SweepRow) -> SweepWait | None:
        """Return what a sweep waits for, a driver or its first slot; None: nothing."""
        return SweepWait.of(self.status(row.id)["waiting"])

    def log_parts(
        self,
        row: SweepRow,
        trial: str,
        rank: int | None,
        most: int,
        offset: int | None = None,
        order: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the logs of a trial's ranks, oldest order first; see `Log.part`."""
        query = {"rank": rank, "tail": most, "offset": offset, "order": order}
        return list(self.http.get(path_of(row.id, "logs", trial), query)["logs"])

    def find(self, name: str) -> SweepRow:
        """Return a sweep's row, by its id, a beginning of it, or `last`."""
        return SweepRow(**self.facts(name)["row"])

    def follow(self, name: str) -> Follow[SweepState]:
        """Return a sweep so that it can be read repeatedly; see `find`."""
        row = self.find(name)
        file = self.home.snapshot(row.id)
        return Follow(self, row, lambda: SweepState(specs.thaw(row.spec)), file)

    def pages(self, sweep: str, since: int, wait_s: float) -> Iterator[Mapping[str, Any]]:
        """Yield answers with a sweep's events, the last of which has none or says that it is over.

        Args:
            wait_s: for how long to wait for the first event.
        """
        deadline = time.monotonic() + wait_s
        while True:
            wait_s = min(MAX_WAIT_S, max(0.0, deadline - time.monotonic()))
            page = self.http.get(path_of(sweep, "events"), {"since": since, "limit": PAGE}, wait_s)
            if page["events"]:
                since, deadline = page["next"], 0.0
            elif deadline > time.monotonic() and not page["over"]:
                continue
            yield page
            if page["over"] or not page["events"]:
                return

    def facts(self, sweep: str) -> Mapping[str, Any]:
        """Return all that the server has about a sweep but its events."""
        facts: Mapping[str, Any] = self.http.get(path_of(sweep, "record"))
        return facts

    def status(self, sweep: str) -> Mapping[str, Any]:
        """Return a sweep's progress as the server has it."""
        status: Mapping[str, Any] = self.http.get(path_of(sweep))
        return status

    def carry_out(self, operation: ServedFunction[P, R], given: Mapping[str, Any]) -> R:
        """Have the server carry an operation out; return the answer.

        Args:
            given: arguments by their names; those left out have the function's defaults.
        """
        ask, rest = self.http, {name: it for name, it in given.items() if it is not None}
        parts = {name: quote(f"{rest.pop(name)}", safe="") for name in operation.in_path}
        path = operation.path.format_map(parts)
        if operation.method == "GET":
            answered = ask.get(path, rest, work_s=operation.work_s)
        elif operation.method == "DELETE":
            answered = ask.delete(path)
        else:
            answered = ask.post(path, rest, operation.repeatable)
        answer = answered if operation.at_once else self.result(answered)
        return operation.answer.validate_python(answer)

    def result(self, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of the operation in an answer, once it is done."""
        while (operation := self.check_operation(answer["operation"]))["state"] == "running":
            time.sleep(POLL_S)
        return operation["result"] or {}

    def check_operation(self, operation: str) -> Mapping[str, Any]:
        """Return an operation; raise its errors if it failed."""
        operation_data: Mapping[str, Any] = self.http.get(f"operations/{operation}")
        if operation_data["state"] == "failed":
            raise error_of(operation_data["errors"])
        return operation_data


def path_of(sweep: str, word: str | None = None, trial: str | None = None) -> str:
    """Return the path of a sweep or of a trial, or of what a word names of it.

    Raises:
        NotFound: the sweep's id is empty.
    """
    if not sweep:
        raise NotFound("the sweep's id is empty", fix="`hposvc ls` lists all sweeps")
    parts = ["sweeps", sweep, *([] if trial is None else ["trials", trial]), word]
    return "/".join(quote(part, safe="") for part in parts if part is not None)


def to_record(row: SweepRow, state: SweepState, facts: Mapping[str, Any]) -> Record:
    """Return a sweep as its events and its facts have it."""
    runs, driver, behind = facts["runs"], facts["driver"], facts["behind"]
    registered, tracking_uri = facts["registered"], facts["tracking_uri"]
    waiting, proposed = SweepWait.of(facts["waiting"]), facts["proposed"]
    return Record(
        row,
        state,
        runs,
        driver,
        behind,
        registered,
        tracking_uri,
        waiting=waiting,
        proposed=proposed,
    )
