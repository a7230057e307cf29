"""A server's sweeps: they are read here, and driven there.

The journal is read as events, of which only new ones are fetched, and folded here: so every view
shows a server's sweep as it shows one of this machine.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter

from hposvc import api
from hposvc import spec as specs
from hposvc.driver.loop import MessageListener
from hposvc.errors import FixableError, LeftRunning, NotFound, OutOfReach, SpecError
from hposvc.events import NOTHING, RENEWALS, Attached, DriverState, Event, Requested, Verb
from hposvc.journal.follow import Follow
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.journal.waiting import SweepWait
from hposvc.open_sweep import OpenSweep, Record
from hposvc.operation import P, R, ServedFunction
from hposvc.remote.http import Http, error_of, find_token
from hposvc.remote.server import submission
from hposvc.remote.server.event_data import event_from_data
from hposvc.remote.server.submission import Accepted, command_at, find_variables
from hposvc.spec import SweepSpec
from hposvc.spec.parsing import overrides
from hposvc.spec.parsing.document import from_mapping
from hposvc.spec.types import NAME
from hposvc.state.answers import ListedSweep
from hposvc.state.receipt import RequestReceipt
from hposvc.state.sweep import SweepState
from hposvc.state.trial import OVER

PAGE = 1000  # events, or sweeps, in one answer
MAX_WAIT_S = 60.0  # for which a server lets one request wait
POLL_S = 0.5  # between two looks at an operation, or at logs
WAIT_S = 1.0  # for how long the server waits for the next event of a sweep that is followed
QUIET_S = 90.0  # without an event; a server starts a dead driver again within a minute
BEGINNINGS = ("submit", "fork", "repro")  # verbs of the operations that make sweeps


@dataclass(frozen=True)
class ServedSweeps:
    """A server, whose sweeps are worked with as those of a home; see hposvc/verbs/place.py."""

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

    @property
    def url(self) -> str:
        """The server's URL, as `--server` takes it."""
        return self.http.name

    @property
    def scopes(self) -> Sequence[str]:
        """The scopes of the server's token; if it does not say, each call gets the reason."""
        with suppress(FixableError, SpecError):
            return list(self.http.get("me")["scopes"])
        return ("read", "submit", "steer")

    def read(self, sweep: str, after: int) -> Iterator[tuple[int, Event]]:
        """Yield a sweep's events after a number, each with its number."""
        for page in self.pages(sweep, after, self.wait_s):
            for event in page["events"]:
                yield event["seq"], event_from_data(event["kind"], event["time"], event["data"])

    def record_of(self, row: SweepRow, look: Callable[[], SweepState]) -> Record:
        """Return a sweep as its journal has it now; the next look changes the record's state."""
        facts = self.facts(row.id)  # first: a driver ending now writes its events
        facts = {**facts, "row": row, "waiting": SweepWait.of(facts["waiting"]), "state": look()}
        return Record(**{it.name: facts[it.name] for it in fields(Record) if it.name in facts})

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

    def has(self, sweep: str) -> bool:
        """Return whether a sweep has this very id."""
        with suppress(NotFound):
            return bool(NAME.fullmatch(sweep)) and self.find(sweep).id == sweep
        return False

    def newest(self, most: int | None = None) -> Iterator[SweepRow]:
        """Yield the newest sweeps, the newest first.

        Args:
            most: None: all.
        """
        yield from (self.find(listed.sweep) for listed in islice(self.ls(), most))

    def ls(
        self, project: str | None = None, tag: str | None = None, since: float | None = None
    ) -> list[ListedSweep]:
        """List all sweeps, newest first."""
        read, listed = TypeAdapter(list[ListedSweep]), list[ListedSweep]()
        query = {"project": project, "tag": tag, "since": since, "limit": PAGE, "cursor": None}
        while True:
            page = self.http.get("sweeps", query)
            listed += read.validate_python(page["sweeps"])
            if page["next"] is None:
                return listed
            query["cursor"] = page["next"]

    def events(self, sweep: str, since: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
        """Return the events of a sweep after a number, as data."""
        pages = list(self.pages(sweep, since, wait_s))
        return {**pages[-1], "events": [event for page in pages for event in page["events"]]}

    def submit(
        self,
        spec: SweepSpec,
        identifier: str | None = None,
        new: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> Accepted:
        """Send a sweep with its files; the same sweep sent again is not begun again.

        Args:
            identifier: of the sweep; None: a name with a hash of the spec and of the files.
            new: use an id that was never used, so that another sweep begins.
            say: receives messages about the progress, for people.

        Raises:
            SpecError: the spec is wrong, here or there; or another sweep has the id.
        """
        body, archive = submission.pack_body(self.home, spec, say)
        if archive is not None:
            self.http.put(f"archives/{body['archive']}", archive)
        return self.send(body, identifier, new)

    def send(
        self, body: Mapping[str, object], identifier: str | None = None, new: bool = False
    ) -> Accepted:
        """Send a sweep as the API takes it; however often the request arrives, it is made once."""
        wish: dict[str, object] = {"new": new} if identifier is None else {"id": identifier}
        answer = self.http.post("sweeps", {**body, **wish}, key=token_hex(16))
        return Accepted(answer["sweep"], answer["state"], answer["operation"], self.url)

    def run(
        self,
        spec: SweepSpec,
        identifier: str | None = None,
        address: str | None = None,
        watching: api.Watching = api.unwatched,
        embedded: api.Embedded | None = None,
    ) -> Record:
        """Submit a new sweep, and show it to its end."""
        accepted = self.submit(spec, identifier or api.new_id(spec))
        return self.show(accepted.sweep, watching, accepted.operation)

    def fork(
        self,
        sweep: str,
        set: Mapping[str, object],
        identifier: str | None,
        address: str | None,
        watching: api.Watching,
    ) -> Record:
        """Have a new sweep begin that learns from another, and show it to its end."""
        spec = overrides.apply(from_mapping(self.facts(sweep)["row"]["spec"]), set).data
        body = {"set": dict(set), "secrets": find_variables(spec)}
        wish = {} if identifier is None else {"id": identifier}
        answer = self.http.post(path_of(sweep, "fork"), {**body, **wish}, key=token_hex(16))
        return self.show(answer["sweep"], watching, answer["operation"])

    def reproduce(
        self,
        sweep: str,
        trial: str,
        accept_code: bool,
        address: str | None,
        watching: api.Watching,
    ) -> tuple[Record, None]:
        """Have a trial trained again in a new sweep, and show that to its end.

        The server compares the two when it is asked to (hposvc/verbs/resume.py).
        """
        row = self.facts(sweep)["row"]
        body = {"accept_code": accept_code, "secrets": find_variables(row["spec"])}
        answer = self.http.post(path_of(row["id"], "repro", trial), body)
        return self.show(answer["sweep"], watching, answer["operation"]), None

    def resume(
        self, sweep: str, accept_code: bool, address: str | None, watching: api.Watching
    ) -> tuple[Record, bool]:
        """Have a sweep go on, and show it; return it, and whether it had ended before."""
        status = self.status(sweep)
        name, ended = status["sweep"], status["state"] in OVER
        answer = self._ask_to_resume(status, accept_code)
        if not ended:
            operation, since = answer["operation"], status["seq"]
            return self.show(name, watching, operation, since, _resumes), ended
        with watching(name):
            self.result(answer)
            return OpenSweep(self, name).record(), ended

    def check_same(self, spec: SweepSpec, identifier: str) -> bool:
        """Check that a recorded sweep has this spec; return whether the server drives it on."""
        self.submit(spec, identifier)  # refused, unless it is the same sweep
        return self.status(identifier)["state"] not in ("PAUSED", "INTERRUPTED", *OVER)

    def wait(self, sweep: str, watching: api.Watching = api.unwatched) -> Record:
        """Show a sweep until it has ended or is paused."""
        operations = self.http.get("operations", {"sweep": sweep})["operations"]
        begun = [it["operation"] for it in operations if it["verb"] in BEGINNINGS]
        return self.show(sweep, watching, *begun[:1])

    def steer(
        self,
        sweep: str,
        verb: Verb,
        trial: str | None = None,
        changes: Mapping[str, object] = NOTHING,
    ) -> RequestReceipt:
        """Request a verb of hposvc.events of a sweep, or of one of its trials."""
        body: dict[str, object] = {}
        action: str = verb
        if verb == "drain":
            action, body = "stop", {"drain": True}
        if verb == "extend":
            body = {"set": dict(changes)}
        if verb == "exclude":
            body = dict(changes)
        if verb in RENEWALS:
            body |= self._secrets_for(self.status(sweep))
        where = path_of(sweep, action, trial)
        answer = self.http.post(where, body, repeatable=verb not in RENEWALS)
        receipt = RequestReceipt(**(answer.get("receipt") or self.result(answer)))
        return replace(receipt, copies=tuple(answer.get("copies", ())))

    def renew(
        self,
        sweep: str,
        verb: Verb,
        trial: str | None,
        changes: Mapping[str, object],
        address: str | None,
        watching: api.Watching,
    ) -> Record | RequestReceipt:
        """Request a renewal of a sweep, and show the sweep if it had ended."""
        before = self.status(sweep)
        receipt = self.steer(before["sweep"], verb, trial, changes)
        if receipt.state not in OVER:
            return receipt
        return self.show(receipt.sweep, watching, None, before["seq"], _renews)

    def begin_apart(self, spec: SweepSpec, sweep: str) -> str:
        """Have a sweep begin, unless it has begun; return its state."""
        with suppress(NotFound):
            return f"{self.status(sweep)['state']}"
        return self.submit(spec, sweep).state

    def resume_apart(self, sweep: str) -> None:
        """Have a sweep go on."""
        self._ask_to_resume(self.status(sweep), accept_code=False)

    def show(
        self,
        sweep: str,
        watching: api.Watching = api.unwatched,
        operation: str | None = None,
        since: int = 0,
        begins: Callable[[Event], bool] | None = None,
    ) -> Record:
        """Show a sweep until it has ended or is paused, and return it.

        Args:
            operation: what the sweep waits for; if it fails, its errors are raised.
            since: the events after this number are new to the watchers.
            begins: which of these the sweep goes on with; None: it goes on already.

        Raises:
            LeftRunning: by Ctrl-C; the sweep goes on.
            OutOfReach: the sweep has no driver, and the server starts none.
        """
        with watching(sweep) as watchers:
            try:
                return self._show(sweep, watchers, operation, since, begins)
            except KeyboardInterrupt as error:
                command = command_at(self.url, f"status {sweep}")
                message = f"{sweep} goes on at {self.url}; look at it by: {command}"
                raise LeftRunning(message) from error

    def _show(
        self,
        sweep: str,
        watchers: Sequence[Any],
        operation: str | None,
        since: int,
        begins: Callable[[Event], bool] | None,
    ) -> Record:
        follow = replace(self, wait_s=WAIT_S).follow(sweep)
        going, events = begins is None, list[Event]()
        last_event_at = time.monotonic()

        def keep(event: Event) -> None:
            if follow.seq > since:
                events.append(event)

        while True:
            events.clear()
            state = follow.look(keep)
            going = going or any(begins(event) for event in events if begins is not None)
            for watcher in watchers:
                watcher.on_events(state, events)
            self._say_waiting(sweep, state, watchers)
            if operation and (not going or state.state in ("QUEUED", "FAILED")):
                self.check_operation(operation)
            if going and (state.finished or state.state == "PAUSED"):
                return self._await_sinks(follow)
            last_event_at = time.monotonic() if events else last_event_at
            if state.state == "RUNNING" and time.monotonic() - last_event_at > QUIET_S:
                self._check_driven(sweep)
                last_event_at = time.monotonic()
            if not (going or events):
                time.sleep(POLL_S)  # the server does not wait for events of an ended sweep

    def _say_waiting(self, sweep: str, state: SweepState, watchers: Sequence[Any]) -> None:
        """Have those watchers that show messages say what a sweep waits for at its beginning."""
        if state.finished or any(state.trials):
            return
        waiting = SweepWait.of(self.status(sweep)["waiting"])
        text = "" if waiting is None else waiting.describe()
        for watcher in watchers:
            if isinstance(watcher, MessageListener):
                watcher.say(text)

    def _check_driven(self, sweep: str) -> None:
        if self.facts(sweep)["driver"] != "alive":
            message = f"{sweep} is INTERRUPTED: no driver is at work, and the server starts none"
            command = command_at(self.url, f"resume {sweep}")
            raise OutOfReach(message, fix=f"{command} has it started")

    def _await_sinks(self, follow: Follow[SweepState]) -> Record:
        """Return an ended sweep once its driver has sent all of it to the sinks, or is gone."""
        while True:
            record = self.record_of(follow.row, follow.look)
            if not record.behind or record.driver != "alive":
                return record
            time.sleep(POLL_S)

    def _ask_to_resume(self, status: Mapping[str, Any], accept_code: bool) -> Mapping[str, Any]:
        body = {"accept_code": accept_code, **self._secrets_for(status)}
        answer: Mapping[str, Any] = self.http.post(path_of(status["sweep"], "resume"), body)
        return answer

    def _secrets_for(self, status: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return this machine's values of a sweep's secrets, as a body has them.

        A sweep of others, whose code would get them, gets none.
        """
        if status["owner"] not in (None, self.http.get("me")["name"]):
            return {}
        variables = find_variables(self.facts(status["sweep"])["row"]["spec"])
        return {"secrets": variables} if variables else {}


def path_of(sweep: str, word: str | None = None, trial: str | None = None) -> str:
    """Return the path of a sweep or of a trial, or of what a word names of it.

    Raises:
        NotFound: the sweep's id is empty.
    """
    if not sweep:
        raise NotFound("the sweep's id is empty", fix="`hposvc ls` lists all sweeps")
    parts = ["sweeps", sweep, *([] if trial is None else ["trials", trial]), word]
    return "/".join(quote(part, safe="") for part in parts if part is not None)


def _resumes(event: Event) -> bool:
    """Whether a driver took over a sweep to go on with it."""
    return isinstance(event, Attached) and event.resumes


def _renews(event: Event) -> bool:
    """Whether an ended sweep goes on with the event."""
    return isinstance(event, Requested) and event.verb in RENEWALS
