"""Follow a server's sweep, or its logs, until it has ended."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hposvc import api
from hposvc.driver.loop import MessageListener
from hposvc.errors import LeftRunning, OutOfReach
from hposvc.events import Event
from hposvc.journal.follow import Follow
from hposvc.journal.waiting import SweepWait
from hposvc.open_sweep import Record
from hposvc.remote.server.connection import POLL_S, ServedSweeps
from hposvc.state.sweep import SweepState

WAIT_S = 1.0  # for how long the server waits for the next event of a sweep that is followed
QUIET_S = 90.0  # without an event; a server starts a dead driver again within a minute
BEGINNINGS = ("submit", "fork", "repro")  # verbs of the operations that make sweeps


def command_at(url: str, words: str) -> str:
    """Return the command of a verb for a server's sweeps, in a shell like this one.

    Args:
        words: the verb and its arguments, such as `status mnist-1`.
    """
    named = (os.environ.get("HPOSVC_SERVER") or "").rstrip("/") == url
    return f"hposvc {words}" if named else f"hposvc --server {url} {words}"


def show(
    server: ServedSweeps,
    sweep: str,
    watchers: Sequence[Any] = (),
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
    follow = replace(server, wait_s=WAIT_S).follow(sweep)
    going, events = begins is None, list[Event]()
    last_event_at = time.monotonic()

    def keep(event: Event) -> None:
        if follow.seq > since:
            events.append(event)

    try:
        while True:
            events.clear()
            state = follow.look(keep)
            going = going or any(begins(event) for event in events if begins is not None)
            for watcher in watchers:
                watcher.turn(state, events)
            _say_waiting(server, sweep, state, watchers)
            if operation and (not going or state.state in ("QUEUED", "FAILED")):
                server.check_operation(operation)
            if going and (state.finished or state.state == "PAUSED"):
                return _await_sinks(server, follow)
            last_event_at = time.monotonic() if events else last_event_at
            if state.state == "RUNNING" and time.monotonic() - last_event_at > QUIET_S:
                _check_driven(server, sweep)
                last_event_at = time.monotonic()
            if not (going or events):
                time.sleep(POLL_S)  # the server does not wait for events of an ended sweep
    except KeyboardInterrupt as error:
        command = command_at(server.http.name, f"status {sweep}")
        message = f"{sweep} goes on at {server.http.name}; look at it by: {command}"
        raise LeftRunning(message) from error


def await_rest(server: ServedSweeps, sweep: str, watching: api.Watching = api.unwatched) -> Record:
    """Wait until a sweep has ended or is paused, like that of place.py."""
    with watching(sweep) as watchers:
        operations = server.http.get("operations", {"sweep": sweep})["operations"]
        begun = [
            operation["operation"] for operation in operations if operation["verb"] in BEGINNINGS
        ]
        return show(server, sweep, watchers, *begun[:1])


def _say_waiting(
    server: ServedSweeps, sweep: str, state: SweepState, watchers: Sequence[Any]
) -> None:
    """Have those watchers that show messages say what a sweep waits for before its first trial."""
    if state.finished or any(state.trials):
        return
    waiting = SweepWait.of(server.status(sweep)["waiting"])
    text = "" if waiting is None else waiting.describe()
    for watcher in watchers:
        if isinstance(watcher, MessageListener):
            watcher.say(text)


def _check_driven(server: ServedSweeps, sweep: str) -> None:
    if server.facts(sweep)["driver"] != "alive":
        message = f"{sweep} is INTERRUPTED: no driver is at work, and the server starts none"
        command = command_at(server.http.name, f"resume {sweep}")
        raise OutOfReach(message, fix=f"{command} has it started")


def _await_sinks(server: ServedSweeps, follow: Follow[SweepState]) -> Record:
    """Return an ended sweep once its driver has sent all of it to the sinks, or is gone."""
    while (record := server.record_of(follow.row, follow.look)).behind and record.driver == "alive":
        time.sleep(POLL_S)
    return record
